"""Tests pages of calm report, loaded from disk in chromium without a network.

    report_browser.py FOLDER [SCREENSHOTS]      FOLDER has NAME.html with NAME.json, what `calm report --json` printed
"""
import base64
import io
import json
import os
import re
import sys

import axe_selenium_python
from PIL import Image
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.actions.action_builder import ActionBuilder
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

folder = sys.argv[1]
screenshots = sys.argv[2] if len(sys.argv) > 2 else None
WIDTHS = (360, 400, 1280, 1920)
FULL = ("w4", "moe", "ablation", "bert")    # at all widths; the others on a phone and on a desk
ALIKE = ("timed", "older", "two")           # have w4's parts: on a desk, not on paper
AXE = os.path.join(os.path.dirname(axe_selenium_python.__file__), "node_modules", "axe-core", "axe.min.js")
failures = []


def check(holds, words):
    if not holds:
        failures.append(words)
        print("FAILED:", words, flush=True)


def start():
    options = Options()
    options.binary_location = "/usr/bin/chromium"
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--force-prefers-reduced-motion",
                     "--force-color-profile=srgb", "--host-resolver-rules=MAP * ~NOTFOUND"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))


browser = start()


def script(text, *arguments):
    return browser.execute_script(text, *arguments)


def resize(width, height=900):
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})


def scheme(name):
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": name}]})


def settle(delay=150):
    """Waits for two frames and the page's delay before it draws again."""
    browser.execute_async_script("const done = arguments[1]; setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(done)), arguments[0]);", delay)


def load(name, width):
    resize(width)
    browser.get("file://" + os.path.join(folder, name + ".html"))
    settle(0)


def picture(element):
    """Takes a picture of an element scrolled into the window; outside of it chromium would draw the whole page twice more."""
    box = script("const e = arguments[0]; e.scrollIntoView({block: e.getBoundingClientRect().height > 860 ? 'start' : 'center', behavior: 'instant'});"
                 "const b = e.getBoundingClientRect(); return [b.x + scrollX, b.y + scrollY, b.width, b.height]", element)
    clip = {"x": box[0], "y": box[1], "width": box[2], "height": min(box[3], 860), "scale": 1}
    data = browser.execute_cdp_cmd("Page.captureScreenshot", {"clip": clip, "optimizeForSpeed": True})["data"]
    return Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB")


def is_blank(image):
    colours = image.getcolors(1 << 20)
    most = max(n for n, _ in colours)
    return len(colours) < 4 or most > 0.995 * image.width * image.height


def check_figures(name, width):
    """Checks that every figure is inside the page and has content, in its elements and in its pixels."""
    page = script("return [document.documentElement.scrollWidth, innerWidth]")
    check(page[0] <= page[1], f"{name} at {width}: the page is {page[0]} wide, the window {page[1]}")
    for figure in browser.find_elements(By.CSS_SELECTOR, "main figure"):
        title = script("return arguments[0].id", figure)
        pictures = [p for p in figure.find_elements(By.CSS_SELECTOR, ".plot > svg, .heat") if p.is_displayed()]
        check(pictures, f"{name} at {width}: {title} has no picture")
        for one in pictures:
            left, right, high, marks = script(
                "const b = arguments[0].getBoundingClientRect(); return [b.left, b.right, b.height,"
                " [...arguments[0].querySelectorAll('path, rect, line')].filter(e => e.getBBox && e.getBBox().width + e.getBBox().height > 0).length]", one)
            check(left >= -0.5 and right <= width + 0.5 and high > 20, f"{name} at {width}: {title} is at {left} to {right}, {high} high")
            check(marks > 0, f"{name} at {width}: {title} is empty")
            outside = script(
                "const b = arguments[0].getBoundingClientRect(); return arguments[0].matches('svg') ? [...arguments[0].querySelectorAll('text')]"
                ".filter(t => { const r = t.getBoundingClientRect(); return r.width > 0 && (r.left < b.left - 2 || r.right > b.right + 2); })"
                ".map(t => t.textContent) : []", one)
            check(not outside, f"{name} at {width}: {title} has texts that are cut: {outside}")
            check(name not in FULL and width == 360 or not is_blank(picture(one)), f"{name} at {width}: {title} is blank")


def check_cut(name, width):
    """Checks that nothing exceeds an edge: no words, no table rows, nor the matrix, which fills its place."""
    cut = script("return [...document.querySelectorAll('main *, header *, nav *')].filter(e => !e.closest('svg') && e.getClientRects().length &&"
                 " (e.getBoundingClientRect().right > innerWidth + 1 || (e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0 && getComputedStyle(e).overflowX !== 'visible')))"
                 ".map(e => e.tagName + ' ' + e.className + ' ' + e.textContent.slice(0, 40))")
    check(width > 560 or not cut, f"{name} at {width}: cut off: {cut[:3]}")
    heat = script("const h = document.getElementById('matrix-heat'); if (!h) return null; const b = [...h.querySelectorAll('svg')].pop();"
                  "return [h.scrollWidth - h.clientWidth, h.clientWidth - b.getBoundingClientRect().width, h.scrollHeight - h.clientHeight, b.querySelectorAll('text').length]")
    if heat:
        check(heat[0] <= 0 and abs(heat[1]) <= 1, f"{name} at {width}: the matrix is not as wide as its place: {heat}")
        check(heat[2] <= 1 or heat[3] > 400, f"{name} at {width}: the matrix of {heat[3]} units is cut below")


def check_contents(name):
    """Checks that the contents name the non-empty parts, and that the first tile compares the result with a baseline, if any."""
    run = (json.load(open(os.path.join(folder, name + ".json"), encoding="utf-8"))["runs"] or [None])[0]
    named = script("return [...document.querySelectorAll('#contents a')].map(a => a.getAttribute('href').slice(1))")
    held = script("return [...document.querySelectorAll('main > section')].filter(s => s.querySelector('figure, table, dl, pre, .cards')).map(s => s.id)")
    check(not run or named == held, f"{name}: the contents name {named}, the page has {held}")
    guard = [row["subject"] for row in run["evaluations"] if row["role"] == "guard"] if run else []
    first = script("const t = document.querySelector('.cards li span'); return t ? t.textContent : ''")
    compared = run and run["run"][0]["result"] in guard and len(guard) > 1
    check(not compared or first.startswith("Against "), f"{name}: the first tile is {first!r}")


def check_quiet(name):
    log = [entry for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]
    check(not log, f"{name}: the console says {log}")
    fetched = script("return performance.getEntriesByType('resource').map(e => e.name)")
    check(not fetched, f"{name}: it fetched {fetched}")


def check_data(name):
    embedded = json.loads(script("return document.getElementById('data').textContent"))
    with open(os.path.join(folder, name + ".json"), encoding="utf-8") as stream:
        check(embedded == json.load(stream), f"{name}: the embedded data are not what --json prints")


# A page has hundreds of rows and labels that differ by their words and numbers alone.  Of those that have the same ancestors,
# attributes and colours, with words or without, axe judges the first three: the others are away meanwhile.
WITHOUT_REPEATED = """
const seen = new Map(), away = [], done = arguments[0];
const own = e => {
    const s = getComputedStyle(e), words = [...e.childNodes].some(c => c.nodeType === 3 && c.data.trim());
    const attributes = [...e.attributes].map(a => a.name + '=' + (/^(x|y|d|dx|dy|x1|x2|y1|y2|width|height|points|title|transform)$/.test(a.name) ? '' : a.value.replace(/[0-9.]+/g, '#')));
    return [e.tagName, attributes, s.color, s.backgroundColor, s.fill, s.opacity, s.fontSize, s.fontWeight, s.display, s.visibility, words].join();
};
const whole = e => own(e) + [...e.children].map(whole).join('/');
for (const e of document.querySelectorAll('tbody > tr, svg > text, svg > path, svg > rect, svg > line, svg > circle')) {
    const kind = whole(e), of = seen.get(e.parentNode) || seen.set(e.parentNode, new Map()).get(e.parentNode);
    of.set(kind, (of.get(kind) || 0) + 1);
    if (of.get(kind) > 3)
        away.push([e, e.parentNode, e.nextSibling]);
}
away.forEach(([e]) => e.remove());
const back = found => { away.reverse().forEach(([e, parent, next]) => parent.insertBefore(e, next)); done(found); };
axe.run(document, {resultTypes: ['violations']}).then(r => back(r.violations), e => back([{id: String(e), impact: 'critical', nodes: []}]));
"""


def check_access(name):
    with open(AXE, encoding="utf-8") as stream:
        script(stream.read())
    found = browser.execute_async_script(WITHOUT_REPEATED)
    for violation in found:
        if violation["impact"] in ("serious", "critical"):
            nodes = [node.get("html", "")[:160] for node in violation["nodes"][:3]]
            check(False, f"{name}: axe: {violation['id']}: {violation.get('help')}: {nodes}")


def values(table, column):
    return script("return [...arguments[0].querySelectorAll('tbody tr')].map(r => { const c = r.cells[arguments[1]]; return c.title || c.textContent; })", table, column)


def check_matrix(name):
    """Checks that keys move and open, Escape closes, a click opens the unit under the pointer, and the filter filters."""
    heat = browser.find_element(By.ID, "matrix-heat")
    units = json.load(open(os.path.join(folder, name + ".json"), encoding="utf-8"))["runs"][0]["matrix"]["units"]
    script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'}); arguments[0].focus()", heat)
    ActionChains(browser).send_keys(Keys.ARROW_DOWN, Keys.ARROW_RIGHT, Keys.ARROW_DOWN).perform()
    said = browser.find_element(By.ID, "matrix-readout").text
    check(said.startswith(units[2]["name"] + " by "), f"{name}: after two arrows down the matrix says {said!r}")
    ActionChains(browser).send_keys(Keys.ENTER).perform()
    settle()
    title = browser.find_element(By.CSS_SELECTOR, "#matrix-detail h3")
    check(title.text == units[2]["unit"], f"{name}: Enter opens {title.text!r}")
    check(script("return document.activeElement === arguments[0]", title), f"{name}: the focus is not on the opened unit")
    rows = browser.find_elements(By.CSS_SELECTOR, "#matrix-detail tbody tr")
    check(len(rows) == len(units[2]["cells"]), f"{name}: the unit shows {len(rows)} candidates of {len(units[2]['cells'])}")
    script("arguments[0].focus()", heat)
    ActionChains(browser).send_keys(Keys.ESCAPE).perform()
    settle()
    check(not browser.find_elements(By.CSS_SELECTOR, "#matrix-detail h3"), f"{name}: Escape leaves the unit open")
    check(script("return document.activeElement === arguments[0]", heat), f"{name}: Escape loses the focus")
    script("arguments[0].scrollTop = 0; arguments[0].scrollIntoView({block: 'start', behavior: 'instant'})", heat)    # it may be higher than the window
    settle()
    spot = script("const t = arguments[0].querySelectorAll('svg')[1].querySelector('path').getBoundingClientRect(); return [t.left + 4, t.top + 4]", heat)
    pointer = ActionBuilder(browser)
    pointer.pointer_action.move_to_location(int(spot[0]), int(spot[1])).click()
    pointer.perform()
    settle()
    check(browser.find_element(By.CSS_SELECTOR, "#matrix-detail h3").text == units[0]["unit"], f"{name}: a click on the first row opens another unit")
    select = browser.find_element(By.ID, "matrix-filter")
    script("arguments[0].value = 'failed'; arguments[0].dispatchEvent(new Event('change'))", select)
    failed = sum(any(c[2] in bad for c in u["cells"]) for u in units for bad in [failing(name)])
    said = browser.find_element(By.ID, "matrix-readout").text
    check(said.startswith(f"{failed} of "), f"{name}: {failed} units have failures, the filter says {said!r}")
    script("arguments[0].value = 'all'; arguments[0].dispatchEvent(new Event('change'))", select)


def failing(name):
    phrases = json.load(open(os.path.join(folder, name + ".json"), encoding="utf-8"))["runs"][0]["matrix"]["phrases"]
    return {i for i, phrase in enumerate(phrases) if phrase in ("failed", "skipped")}


def check_sorting(name):
    script("document.querySelectorAll('#guard details').forEach(d => { d.open = true; })")
    table = browser.find_element(By.CSS_SELECTOR, "#guard table")
    button = table.find_elements(By.CSS_SELECTOR, "thead button")[1]
    for order, falling in (("ascending", False), ("descending", True)):
        script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'}); arguments[0].focus()", button)
        ActionChains(browser).send_keys(Keys.ENTER).perform()
        numbers = [float(v) for v in values(table, 1)]
        check(len(numbers) > 2 and numbers == sorted(numbers, reverse=falling), f"{name}: sorted {order}: {numbers}")
        check(script("return arguments[0].parentNode.getAttribute('aria-sort')", button) == order, f"{name}: aria-sort is not {order}")


def check_choices(name):
    """Checks that a figure's select draws again, and that the copy button reports its result."""
    for chosen, figure in (("hook", "#histogram svg path.bar"), ("statistic", "#activations figure svg path.line")):
        before = script("return document.querySelector(arguments[0]).getAttribute('d')", figure)
        script("const s = document.getElementById(arguments[0]); s.selectedIndex = s.options.length - 1; s.dispatchEvent(new Event('change'))", chosen)
        check(before != script("return document.querySelector(arguments[0]).getAttribute('d')", figure), f"{name}: {chosen} changes nothing")
    button = browser.find_element(By.CSS_SELECTOR, "#repeat .copy button")
    script("arguments[0].click()", button)
    settle()
    check(button.text in ("Copied", "Selected"), f"{name}: copying says {button.text!r}")


def check_words(name):
    """Checks that tokens are marked between the words around them, and that the table of worst tokens can be sorted."""
    run = json.load(open(os.path.join(folder, name + ".json"), encoding="utf-8"))["runs"][0]
    rows = [dict(zip(run["worst"]["columns"], row)) for row in run["worst"]["rows"]]
    table = browser.find_element(By.XPATH, "//section[@id='evaluation']//table[caption='Tokens of greatest KL']")
    first = script("const s = arguments[0].querySelector('tbody .excerpt'), m = s.querySelector('mark'); return [s.textContent, m.textContent]", table)
    unseen = lambda text: text.replace("\n", "\\n")
    check(first == [unseen(rows[0]["text_before"] + rows[0]["text"]), unseen(rows[0]["text"])], f"{name}: the worst token is shown as {first}")
    script("arguments[0].querySelectorAll('thead button')[0].click(); arguments[0].querySelectorAll('thead button')[0].click()", table)
    numbers = [float(v) for v in values(table, 0)]
    check(len(numbers) == len(rows) and numbers == sorted(numbers), f"{name}: the worst tokens are sorted as {numbers[:5]}")
    marked = script("return document.querySelectorAll('#activations .excerpt mark').length")
    check(marked == min(60, len(run["peaks"]["rows"])), f"{name}: {marked} of the largest activations stand in their words")


def check_time(name, foreseen):
    """Checks that every stage has its seconds, and the forecast's if there is one; the text above has the sums."""
    run = json.load(open(os.path.join(folder, name + ".json"), encoding="utf-8"))["runs"][0]
    table = browser.find_element(By.XPATH, "//section[@id='time']//table[caption='Time by stage']")
    keys = ["seconds", "cpu_seconds"] + ["forecast_seconds"] * foreseen
    columns = [1, 2] + [4] * foreseen
    heads = len(table.find_elements(By.CSS_SELECTOR, "thead th"))
    check(heads == 4 + foreseen, f"{name}: times have {heads} columns")
    check(values(table, 0) == [row["stage"] for row in run["stages"]], f"{name}: the stages are {values(table, 0)}")
    for order, (key, column) in enumerate(zip(keys, columns)):
        shown = [float(v) for v in values(table, column)]
        check(shown == [row[key] for row in run["stages"]], f"{name}: {key} of the stages: {shown}")
        total = sum(row[key] for row in run["stages"])
        words = browser.find_element(By.CSS_SELECTOR, "#time .read").text
        # JavaScript rounds 9.25 up and Python to even, so the page's number is compared, not its digits
        sums = [float(text) for text in re.findall(r"([0-9.]+) s (?:by|of) ", words)]
        check(len(sums) == 2 + foreseen, f"{name}: {words!r} has {len(sums)} sums")
        check(abs(sums[order] - total) <= 0.05 + 1e-9, f"{name}: {total} s of {key} is not in {words!r}")


def check_policy(name):
    """Checks that no inline handler, foreign script or network request works."""
    script("const b = document.createElement('button'); b.setAttribute('onclick', 'document.title = \"owned\"'); document.body.append(b); b.click(); b.remove();"
           "const s = document.createElement('script'); s.textContent = 'document.title = \"owned\"'; document.body.append(s); s.remove();")
    check(browser.title != "owned", f"{name}: an inline handler or script runs")
    said = browser.execute_async_script("const done = arguments[0]; fetch('file:///etc/hostname').then(() => done('fetched'), () => done('refused'));")
    check(said == "refused", f"{name}: it may fetch")
    browser.get_log("browser")    # the refusals themselves


PAPER = (688, 1017)    # A4 less margins of 14 mm, at 96 pixels per inch


def check_print(name):
    """Checks that print layout opens everything, cuts nothing at an edge or the end of a page, and uses light colours."""
    resize(*PAPER)
    settle()
    folded = script("return document.querySelectorAll('details:not([open])').length")
    heats = script("return [...document.querySelectorAll('.heat > svg')].length")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": [{"name": "prefers-color-scheme", "value": "dark"}]})
    settle()
    wide = script("return [...document.querySelectorAll('main *, header *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1)"
                  ".map(e => e.tagName + ' ' + e.textContent.slice(0, 40))")
    check(not wide, f"{name} on paper: wider than a page: {wide[:3]}")
    cut = script("return [...document.querySelectorAll('.heat, .scroll, pre')].filter(e => e.scrollHeight > e.clientHeight + 1 && getComputedStyle(e).overflowY !== 'visible').length")
    check(cut == 0, f"{name} on paper: {cut} boxes hide what would be scrolled to")
    check(script("return document.querySelectorAll('details:not([open])').length") == 0, f"{name} on paper: parts are folded")
    heights = script("return [...document.querySelectorAll('.plot > svg, .heat > svg')].map(e => e.getBoundingClientRect().height)")
    check(all(20 < height <= 0.9 * PAPER[1] + 1 for height in heights), f"{name} on paper: figures are {heights} high")
    units = json.load(open(os.path.join(folder, name + ".json"), encoding="utf-8"))["runs"]
    units = units[0]["matrix"]["units"] if units else []
    named = script("return [...document.querySelectorAll('.heat > svg > svg:last-child > text')].length")
    check(named == (len(units) if heats else 0), f"{name} on paper: {named} rows of the matrix, {len(units)} units")
    colours = script("const s = getComputedStyle(document.body); return [s.backgroundColor, s.color, getComputedStyle(document.documentElement).getPropertyValue('--s0').trim()]")
    check(colours == ["rgb(255, 255, 255)", "rgb(0, 0, 0)", "#edf2f8"], f"{name} on paper: the colours are {colours}")
    shown = script("return [...document.querySelectorAll('nav, .controls, .readout')].filter(e => e.getClientRects().length).length")
    check(shown == 0, f"{name} on paper: {shown} controls")
    heads = script("return [...document.querySelectorAll('thead button')].filter(e => getComputedStyle(e).display !== 'contents').length")
    check(heads == 0, f"{name} on paper: the heads of tables are buttons, which are not repeated on the next page")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    settle()
    again = script("return [document.querySelectorAll('details:not([open])').length, document.querySelectorAll('.heat > svg').length]")
    check(again == [folded, heats], f"{name}: after printing the page is not as it was: {again}, {[folded, heats]}")


def check_printer(name):
    """Prints for real: the page is ready when printing begins, and restored afterwards."""
    load(name, 1280)
    folded = script("window.seen = []; addEventListener('beforeprint', () => window.seen.push(document.querySelectorAll('details:not([open])').length));"
                    "return document.querySelectorAll('details:not([open])').length")
    paper = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", {"paperWidth": 8.27, "paperHeight": 11.69, "preferCSSPageSize": True})["data"])
    check(paper.startswith(b"%PDF-") and paper.count(b"/Type /Page\n") > 4, f"{name}: {paper.count(b'/Type /Page' + bytes([10]))} pages are printed")
    settle()
    check(script("return window.seen") == [0], f"{name}: {script('return window.seen')} parts are folded when it is printed")
    check(folded > 0 and script("return document.querySelectorAll('details:not([open])').length") == folded, f"{name}: printing leaves parts open")


def shoot(name, colours, path, selector=None):
    load(name, 1280)
    scheme(colours)
    settle()
    if selector:
        script("document.querySelector('nav').hidden = true")
        image = picture(browser.find_element(By.CSS_SELECTOR, selector))
    else:
        data = browser.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": {"x": 0, "y": 0, "width": 1280, "height": 1500, "scale": 0.75}})["data"]
        image = Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB")
    image.quantize(160).save(os.path.join(screenshots, path), optimize=True)
    scheme("light")


try:
    names = sorted(n[:-5] for n in os.listdir(folder) if n.endswith(".html"))
    for name in names:
        for width in WIDTHS if name in FULL else (1280,) if name == "large" or name in ALIKE else (360, 1280):
            load(name, width)
            check_figures(name, width)
            check_cut(name, width)
            check_quiet(f"{name} at {width}")
        check_data(name)
        check_contents(name)
        if name not in ALIKE:
            check_access(name)
            check_print(name)
        print(name, "was read", flush=True)
    check_printer("w4")
    load("w4", 1280)
    scheme("dark")
    settle()
    check_access("w4 in the dark")
    scheme("light")
    check_matrix("w4")
    check_access("w4 with an open unit")
    load("moe", 1280)
    check_matrix("moe")
    load("w4", 1280)
    check_sorting("w4")
    check_choices("w4")
    check_quiet("w4 after use")
    check_policy("w4")
    check_words("w4")
    check_time("w4", False)
    for width in (400, 1280):
        load("timed", width)
        check_time("timed", True)
        scheme("dark")
        settle()
        check_access(f"timed at {width} in the dark")
        scheme("light")
    load("older", 1280)
    said = browser.find_element(By.TAG_NAME, "main").text
    check("The words around are not in the store" in said and "no loss by token" in said and "no times of this run" in said, "older: it does not say what its store has not")
    load("schemes", 1280)
    chosen = script("const s = document.getElementById('which-run'); s.value = 2; s.dispatchEvent(new Event('change')); return [...s.options].map(o => o.textContent)")
    check([words.split(", ")[-1] for words in chosen] == ["w4a16_g128", "w3a16_g128", "w2a16_g128"], f"schemes: the runs are {chosen}")
    check("Runs 1, 2 and 3; parts of run 3" in browser.find_element(By.TAG_NAME, "h1").text, "schemes: the third run is not shown")
    load("two", 1280)
    check(browser.find_elements(By.ID, "difference"), "two: no part for what differs")
    script("const s = document.getElementById('which-run'); s.value = 1; s.dispatchEvent(new Event('change'))")
    check("parts of run 2" in browser.find_element(By.TAG_NAME, "h1").text, "two: the other run is not shown")
    load("hostile", 1280)
    check(browser.title != "owned" and not browser.find_elements(By.CSS_SELECTOR, "img, main b, main i, main script"), "hostile: strangers' words are markup")
    check("<script>" in browser.find_element(By.TAG_NAME, "h1").text, "hostile: the name is not shown as it is")
    words = script("return [...document.querySelectorAll('#evaluation .excerpt, #activations .excerpt')].map(e => e.textContent)")
    check(words and not any(c < " " or c in "\u202e\u2028" for text in words for c in text), "hostile: characters that steer are in the text")
    check(any("\ufffd" in text for text in words), "hostile: half a UTF-8 sequence is not shown as such")
    load("empty", 1280)
    check("has no runs" in browser.find_element(By.TAG_NAME, "main").text, "empty: it does not say so")
    if screenshots:
        shoot("w4", "light", "report-light.png")
        shoot("moe", "dark", "report-dark.png", "#matrix")
finally:
    browser.quit()
print(f"{len(names)} pages, {len(failures)} failures")
sys.exit(1 if failures else 0)
