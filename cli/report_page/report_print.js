/* Paper cannot be opened, scrolled or pointed at: before printing the script opens every folded part, adds rows to tables,
 * and draws figures at the width of a page; afterwards it restores the page. */
const PAPER_WIDTH = 680;    /* pixels between the margins of A4 and of US letter, at 96 per inch */
const ROWS_AT_FIRST = 60, ROWS_ON_PAPER = 250;
const plots = [], tables = [];    /* parts to draw again: {redraw(force)}, {show()} */
let onPaper = false;

/* Returns the width of a figure's place; 0: the place is folded. */
function widthOf(place) { return onPaper ? PAPER_WIDTH : Math.floor(place.clientWidth); }

function forPaper(paper) {
  if (paper === onPaper) return;
  onPaper = paper;
  if (paper)
    for (const folded of document.querySelectorAll("details:not([open])")) {
      folded.setAttribute("data-folded", "");
      folded.open = true;
    }
  else
    for (const folded of document.querySelectorAll("details[data-folded]")) {
      folded.removeAttribute("data-folded");
      folded.open = false;
    }
  for (const table of tables) table.show();
  for (const plot of plots) plot.redraw();
}
function listenToPrinter() {
  addEventListener("beforeprint", () => forPaper(true));
  addEventListener("afterprint", () => forPaper(false));
  matchMedia("print").addEventListener("change", event => forPaper(event.matches));
}
