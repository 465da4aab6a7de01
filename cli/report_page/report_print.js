/* On paper nothing can be opened, scrolled or pointed at: before printing every folded part is opened, tables get their rows,
 * and figures are drawn at the width of a page; afterwards the page is as it was. */
const PAPER_WIDTH = 680;    /* pixels between the margins of A4 and of US letter, at 96 per inch */
const ROWS_AT_FIRST = 60, ROWS_ON_PAPER = 250;
const plots = [], tables = [];    /* what is drawn anew: {redraw(force)}, {show()} */
let onPaper = false;

/* The width that a figure has in its place; 0: the place is folded away. */
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
