"""page — opens the dashboard of real runs in headless Chromium and prints TAP; test_page.sh starts the runs.

page.py URL_RUN PID_RUN URL_JOINING PID_JOINING URL_VIEW FOLDER: values against /status, curves, a worker killed, console, requests,
keyboard, names, contrast, sizes, stored runs next to each other; screenshots go to FOLDER."""
import itertools
import json
import os
import re
import signal
import sys
import time
from urllib.request import urlopen

from playwright.sync_api import sync_playwright

import load

url, pid, url_joining, pid_joining, url_view, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), sys.argv[5], sys.argv[6]
number = 0


def ok(name, is_so, detail=""):
    global number
    number += 1
    print(("ok" if is_so else "not ok"), number, "-", name, flush=True)
    if detail != "":
        print("#", detail, flush=True)


def slow():
    """As load.slow, 10 at most."""
    return min(10, load.slow())


def rest(ms):
    page.wait_for_timeout(ms * min(4, slow()))


def wait_until(seconds, seen):
    """seen() until it is true; how long that took, None: never."""
    begin = time.monotonic()
    while time.monotonic() - begin < seconds * slow():
        if seen():
            return time.monotonic() - begin
        page.wait_for_timeout(50)
    return None


def wait_shown(heard):
    """Until the page shows an answer that it gets from now on: it asks again only after it has shown one."""
    before = len(heard)
    wait_until(20, lambda: len(heard) >= before + 2)


def text(name):
    return page.text_content("#" + name)


def plain(shown):
    """'1.41M', '12.3 ms', '1.5 s' → a number in units, milliseconds"""
    word, _, unit = shown.partition(" ")
    scale = {"k": 1e3, "M": 1e6, "G": 1e9}.get(word[-1])
    value = float(word[:-1]) * scale if scale else float(word)
    return value * 1000 if unit == "s" else value


def near(shown, value):
    return abs(plain(shown) - value) <= 0.006 * abs(value) + 0.005


# Contrast: each text against what is painted behind it (WCAG 2.2, 1.4.3).
CONTRAST = """() => {
  const rgb = c => (c.match(/[\\d.]+/g) || []).map(Number);
  const light = c => c.slice(0, 3).map(v => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4).reduce((a, v, i) => a + v * [.2126, .7152, .0722][i], 0);
  const ground = e => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c.length === 3 || c[3] === 1) return c; } return [255, 255, 255]; };
  let worst = [99, ''];
  for (const e of document.querySelectorAll('body *')) {
    if (!e.getClientRects().length || ![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
    if (['SCRIPT', 'STYLE'].includes(e.tagName) || e.closest('.unseen')) continue;
    const style = getComputedStyle(e), a = light(rgb(e instanceof SVGElement ? style.fill : style.color)), b = light(ground(e));
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (ratio < worst[0]) worst = [ratio, e.tagName + ' ' + e.textContent.trim().slice(0, 30)];
  }
  return worst;
}"""
# Every element that Tab reaches has a name for a screen reader.
NAMELESS = """() => [...document.querySelectorAll('a, input, button, [tabindex="0"]')].filter(e => {
  const by = e.getAttribute('aria-labelledby');
  return !(e.getAttribute('aria-label') || (by && document.getElementById(by)?.textContent) || e.closest('label')?.textContent.trim() || (['A', 'BUTTON'].includes(e.tagName) && e.textContent.trim()));
}).map(e => e.outerHTML.slice(0, 80))"""


def rank_matches(row, rank):
    """A row of the table of ranks beside its rank in /status; a call that takes a second or more is named with its age."""
    if row is None or rank is None:
        return False
    state = rank["state"]
    if rank.get("call") and rank.get("call_age_seconds", 0) >= 1:
        state = re.escape(state) + f", in {rank['call']} for [0-9a-z ]+"
    else:
        state = re.escape(state)
    return row[0] == str(rank["rank"]) and re.fullmatch(state, row[1]) and row[2] == str(rank["step"])


def differences(shown, ranks, s):
    """What the page shows otherwise than this answer has it."""
    bad = [name for name, is_so in {
        "phase": shown["phase"] == s["phase"],
        "loss": shown["loss"] == f"{s['loss']:.4f}",
        "gradient norm": shown["grad_norm"] == f"{s['grad_norm']:.3f}",
        "speed": near(shown["tokens_per_second"], s["tokens_per_second"]),
        "tokens": near(shown["tokens"], s["tokens"]),
        "step time": near(shown["step_ms"], s["step_ms"]["last"]),
        "learning rate": float(shown["lr"].replace("−", "-")) == float(f"{s['lr']:.1e}"),
        "restarts": shown["restarts"] == str(s["restarts"]),
        "step": shown["loss_note"] == f"at step {s['step']}",
        "steps": f"of {s['steps']} " in shown["left"],
        "checkpoint": shown["checkpoint_age_note"] == f"of step {s['checkpoint']['step']}",
        "model": s["model"]["name"] in shown["where"],
    }.items() if not is_so]
    if not all(rank_matches(row, r) for row, r in itertools.zip_longest(ranks, s["ranks"])):
        bad.append(f"ranks {ranks}")
    return bad


def values_match(statuses):
    """The page is compared with the very answer it got: one of those whose step it shows, for two may have the same."""
    shown, ranks = page.evaluate("""() => [Object.fromEntries(['loss', 'grad_norm', 'tokens_per_second', 'step_ms', 'restarts', 'left', 'tokens', 'lr', 'phase', 'where', 'loss_note', 'checkpoint_age_note']
        .map(id => [id, document.getElementById(id).textContent])), [...document.querySelectorAll('#ranks tr')].map(r => [0, 2, 3].map(i => r.children[i].textContent))]""")
    step = int(shown["left"].split()[1])
    mine = [s for s in statuses if s["step"] == step]
    if not mine: # its answer is still on the way to this program
        rest(100)
        return values_match(statuses)
    return min((differences(shown, ranks, s) for s in mine), key=len), shown


def look_at_values(statuses):
    page.wait_for_function("() => document.querySelectorAll('#ranks tr').length === 2 && document.getElementById('checkpoint_age_note').textContent.startsWith('of step')", timeout=60000 * slow())
    bad, shown = values_match(statuses)
    ok("the page shows what /status said", not bad, f"{'differ: ' + ', '.join(bad) if bad else 'equal'}: {json.dumps(shown, ensure_ascii=False)}")


def points():
    return page.evaluate("() => [...document.querySelectorAll('.plot')].filter(e => e.dataset.points).map(e => Number(e.dataset.points))")


def look_at_curves():
    before = points()
    grown = wait_until(6, lambda: all(b > a for a, b in zip(before, points())))
    ok("each curve grows", grown is not None, f"points {before} → {points()}")
    box = page.locator(".plot").nth(0).bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 60)
    at = page.locator(".at").nth(2).text_content()
    ok("pointing at one curve reads all of them at that moment", ", step " in at or ", " in at, at)
    page.mouse.move(5, 5)
    h = json.load(urlopen(url + "history"))
    sizes = {len(v) for v in h["points"].values()}
    ok("/history: lists of one length, in the order of time", len(sizes) == 1 and h["points"]["seconds"] == sorted(h["points"]["seconds"]))


def look_at_keyboard():
    seen = []
    page.evaluate("() => document.activeElement.blur()")
    for _ in range(60):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("() => { const e = document.activeElement; return e.getAttribute('aria-label') || e.id || e.name || e.textContent.trim(); }"))
    wanted = ["Skip to the numbers", "axis", "Loss", "Throughput", "Step time", "Gradient norm", "Learning rate", "smooth", "log", "csv", "settings-file", "samples", "Table of ranks", "Table of nodes", "find", "events", "zoom out", "/status", "/metrics"]
    missing = [w for w in wanted if not any(s.startswith(w) for s in seen)]
    ok("the keyboard reaches everything", not missing, f"missing {missing}" if missing else f"{len(set(seen))} stops")
    page.focus("input[value=seconds]")
    page.keyboard.press("ArrowRight")
    ok("and chooses the axis", page.is_checked("input[value=step]"))
    page.screenshot(path=f"{folder}/steps.png", full_page=True)
    page.keyboard.press("ArrowLeft")
    page.locator(".plot").nth(0).focus()
    page.keyboard.press("Home")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    spoken = text("spoken")
    ok("and reads a curve, point by point, aloud", re.match(r"Loss, \d+:\d\d", spoken) and any(p in spoken for p in ("loading", "training", "evaluating", "checkpointing")), spoken)
    page.keyboard.press("Escape")
    nameless = page.evaluate(NAMELESS)
    ok("everything one can reach has a name", not nameless, str(nameless) if nameless else "")
    heads = page.evaluate("() => [document.documentElement.lang, document.title, document.querySelectorAll('h1').length, document.querySelectorAll('main').length, document.querySelectorAll('th').length]")
    ok("language, title, one h1, one main, heads of tables", heads[0] == "en" and "Convoy" in heads[1] and heads[2:4] == [1, 1] and heads[4] == 38, str(heads))


def look_at_failure():
    children = open(f"/proc/{pid}/task/{pid}/children").read().split()
    os.kill(int(children[-1]), signal.SIGKILL)
    took = wait_until(10, lambda: "restart 1: " in text("events"))
    ok("a killed worker shows within 3 s, with the reason", took is not None and took <= 3 * slow(), f"{took and round(took, 2)} s: {text('events')[:160]}")
    took = wait_until(20, lambda: text("restarts") == "1" and text("phase") in ("training", "checkpointing"))
    ok("and its recovery", took is not None, f"{took and round(took, 2)} s")
    wait_shown(statuses)


def look_at_contrast(name):
    ratio, where = page.evaluate(CONTRAST)
    ok(f"{name}: contrast of every text at least 4.5", ratio >= 4.5, f"least {ratio:.2f}: {where}")


def with_status(change):
    """The page as it would look with this change to what the node says; such states last an instant in a real run."""
    answers = []
    def answer(route):
        body = json.loads(json.dumps(base))
        change(body)
        answers.append(body)
        route.fulfill(json=body)
    page.route("**/status", answer)
    wait_shown(answers)


def look_at_gpus():
    ok("no card of GPUs where there are none", not page.is_visible("#gpus-card") and page.locator("figure:visible").count() == 9, f"{page.locator('figure:visible').count()} curves")
    began = time.monotonic()
    def with_gpus(s):
        s["uptime_seconds"] += 1000 + time.monotonic() - began
        for i, r in enumerate(s["ranks"]):
            r["gpu"] = dict(utilisation=0.9, memory_utilisation=0.4, memory_used_bytes=6e10, memory_total_bytes=8e10, temperature_celsius=61 + 26 * i, power_watts=600, power_limit_watts=700,
                            clock_hertz=1.7e9, memory_clock_hertz=2.6e9, ecc_corrected=3 * i, ecc_uncorrected=0, xids=i, xid_last=31 if i else None, age_seconds=0.4)
    with_status(with_gpus)
    row = page.locator("#gpus tr").nth(1).text_content()
    ok("GPUs: load, memory, temperature, power, errors, Xid; what is wrong stands out", page.is_visible("#gpus-card") and "87 °C" in row and "600 of 700 W" in row and "3 corrected, 0 not" in row and "1, last 31" in row and
       page.locator("#gpus tr").nth(1).locator("[data-tone=bad]").count() == 2, row)
    ok("and curves of them", page.locator("figure:visible").count() == 12)
    look_at_contrast("GPUs")


def look_at_check():
    ok("no card of a check where there was none", not page.is_visible("#check-card"))
    began = time.monotonic()
    def with_check(s):
        s["uptime_seconds"] += 1000 + time.monotonic() - began
        s["check"] = dict(verdict="fail", whole=True, depth="quick", started=1763900000, seconds=4.2, passed=80, warned=1, failed=1, skipped=18, rows=[
            dict(stage="static", name="memlock", verdict="fail", node=2, peer=None, subject="", value=None, unit="", why="64 KiB <b>may</b> be locked", remedy="ulimit -l unlimited"),
            dict(stage="pairs", name="link latency", verdict="warn", node=1, peer=3, subject="tcp", value=5000, unit="us", why="5 ms", remedy="")])
    with_status(with_check)
    row = page.locator("#check tr").first
    ok("a check: what fails, where, and the remedy; text is text", page.is_visible("#check-card") and "80 rows pass" in text("check-line") and "node 2" in row.text_content() and "<b>may</b>" in row.text_content() and
       "ulimit -l unlimited" in row.text_content() and "nodes 1 and 3, tcp" in page.locator("#check tr").nth(1).text_content() and row.locator("[data-tone=bad]").count() == 1, row.text_content())
    look_at_contrast("check")


def look_at_extras():
    """Samples, log, settings, CSV, smoothing, logarithms: of the real run."""
    took = wait_until(20, lambda: page.locator("#samples li").count() > 0)
    ok("samples of text, with their step", took is not None and "after step " in text("samples"), text("samples")[:100])
    took = wait_until(20, lambda: "checkpoint" in text("lines"))
    ok("the log's newest lines", took is not None and "rank 0 checkpoint/async" in text("lines"), text("lines")[-120:])
    shown = page.evaluate("() => Object.fromEntries([...document.querySelectorAll('#settings dt')].map(e => [e.textContent, e.nextSibling.textContent]))")
    ok("settings that differ, no others", shown.get("EVAL_EVERY") == "10" and shown.get("RUN_NAME") == "a <b>run" and "SEED" not in shown, str(shown))
    whole = page.content() + "".join(urlopen(u + path).read().decode() for u in (url, url_joining) for path in ("log", "settings", "status", "history"))
    ok("no secret among them: a password in an address, a token", "hunter2" not in whole and "a-secret-for" not in whole and "***@" in urlopen(url + "settings").read().decode())
    ok("the run's name: in the title, as text", page.title().startswith("a <b>run: "), page.title())
    with page.expect_download() as download:
        page.click("#settings-file")
    saved = json.load(open(download.value.path(), encoding="utf-8"))
    ok("the settings as a file", download.value.suggested_filename == "convoy-settings.json" and {"EVAL_EVERY", "RUN_NAME"} <= {s["name"] for s in saved["settings"]}, str(saved)[:100])
    with page.expect_download() as download:
        page.click("#csv")
    rows = open(download.value.path(), encoding="utf-8").read().strip().split("\n")
    ok("curves as CSV", download.value.suggested_filename == "convoy-history.csv" and rows[0].startswith("seconds,step,phase,loss,") and len({len(r.split(",")) for r in rows}) == 1 and len(rows) > 3, rows[0])
    before = page.locator(".plot").nth(0).locator("path.line").count()
    page.focus("#smooth")
    for _ in range(30):
        page.keyboard.press("ArrowRight")
    faint = page.locator(".plot").nth(0).locator("path.faint").count()
    ok("smoothing: the curve itself stays, faint", faint == 1 and page.locator(".plot").nth(0).locator("path.line").count() == before + 1 and text("smooth-value") == "0.60", text("smooth-value"))
    # Both drawings in one turn of the browser, so of the same history. Where the loss is halfway between its bounds on the
    # linear axis, a logarithmic one shows it higher: clearly so once the loss has fallen by a tenth.
    def axes():
        linear, logarithmic = page.evaluate("""() => {
            const box = document.getElementById('log');
            const heights = is_log => {
                if (box.checked !== is_log) box.click();
                return [...document.querySelector('.plot path.line').getAttribute('d').matchAll(/[ML ]?([-\\d.e]+)[ ,]([-\\d.e]+)/g)].map(m => +m[2]);
            };
            return [heights(false), heights(true)];
        }""")
        share = lambda heights: [(max(heights) - y) / (max(heights) - min(heights)) for y in heights]
        middle = min(range(len(linear)), key=lambda i: abs(share(linear)[i] - 0.5))
        return len(linear), len(logarithmic), share(linear)[middle], share(logarithmic)[middle]
    wait_until(30, lambda: axes()[3] > axes()[2] + 0.02)
    linear_n, logarithmic_n, linear, logarithmic = axes()
    ok("a logarithmic axis", linear_n == logarithmic_n > 2 and logarithmic > linear + 0.01 and page.is_checked("#log") and page.locator(".plot").nth(1).locator("text").count() > 0,
       f"{linear_n} points; the middle one: {linear:.3f}, {logarithmic:.3f}")
    page.screenshot(path=f"{folder}/smooth.png", full_page=True)
    page.uncheck("#log")
    page.focus("#smooth")
    page.keyboard.press("Home")
    context = browser.new_context(java_script_enabled=False)
    plain = context.new_page()
    plain.goto(url)
    shown = plain.locator("noscript").all_text_contents()[-1] if plain.locator("noscript section").count() == 0 else plain.locator("noscript section").text_content()
    ok("without scripts: phase, step, loss, checkpoint", any(phase in shown for phase in ("training", "evaluating", "checkpointing")) and " of 1000000" in shown and "loss " in shown and "checkpoint of step" in shown and "<b>run" in shown, " ".join(shown.split())[:160])
    context.close()


def labels(chart):
    """What is written below a chart, from left to right."""
    return page.evaluate("i => [...document.querySelectorAll('figure:not([hidden]) .plot')][i].querySelectorAll(':scope > text').length + '|' + [...document.querySelectorAll('figure:not([hidden]) .plot')[i].querySelectorAll(':scope > text')].slice(-4).map(e => e.textContent).join(' ')", chart)


def drag(chart, first, last):
    box = page.locator("figure:visible .plot").nth(chart).bounding_box()
    y = box["y"] + 60
    page.mouse.move(box["x"] + first * box["width"], y)
    page.mouse.down()
    page.mouse.move(box["x"] + last * box["width"], y, steps=3)
    page.mouse.up()


def look_at_zoom():
    """Dragging over one chart zooms all; the cursor is in all."""
    page.locator("figure:visible .plot").nth(0).scroll_into_view_if_needed()
    before = labels(0)
    drag(0, 0.4, 0.6)
    # All three in one turn of the browser: each has its own width of labels, but the same range.
    ranges = page.evaluate("() => CHARTS.filter(c => c.x).map(c => [c.back(0), c.back(1e6)].map(v => v.toFixed(3)).join())")
    ok("dragging over a chart zooms all of them alike", len(ranges) >= 8 and len(set(ranges)) == 1 and labels(0) != before and page.is_enabled("#whole"), f"{set(ranges)}")
    box = page.locator("figure:visible .plot").nth(1).bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 60)
    crosses = page.evaluate("() => [CHARTS.filter(c => c.x).length, new Set(CHARTS.filter(c => c.x).map(c => c.back(+c.svg.querySelector('.cross').getAttribute('x1')).toFixed(3))).size]")
    ok("and pointing at one marks the same moment in all", crosses[0] >= 8 and crosses[1] == 1, str(crosses))
    outside = page.evaluate("() => CHARTS.filter(c => c.x).flatMap(c => [...c.svg.querySelectorAll('path.line')]).filter(e => getComputedStyle(e.parentElement).overflow !== 'hidden' || e.parentElement.getAttribute('x') < 10).length")
    ok("lines end at the axes", outside == 0, f"{outside} do not")
    page.screenshot(path=f"{folder}/zoom.png")
    page.locator("figure:visible .plot").nth(0).dblclick(position={"x": 200, "y": 60})
    whole = page.evaluate("() => zoom")
    page.focus("#in")
    page.keyboard.press("Enter")
    ranges = page.evaluate("() => [zoom && zoom[1] - zoom[0], wholeRange()[1] - wholeRange()[0]]")
    ok("a double click shows the whole run, the buttons zoom without a mouse", whole is None and ranges[0] is not None and ranges[0] < 0.7 * ranges[1], str(ranges))
    page.click("#whole")
    ok("and the whole run is back", page.evaluate("() => zoom") is None and page.is_disabled("#whole"))
    page.mouse.move(5, 5)


def look_at_search():
    # Rows and count are read at one moment: the run goes on to log.
    read = "() => [[...document.querySelectorAll('#lines > div')].map(e => e.textContent), document.querySelectorAll('#lines mark').length, document.getElementById('found').textContent]"
    page.fill("#find", "CHECKPOINT/async")
    rows, marks, found = page.evaluate(read)
    ok("search in the log: lines that have the text, with it marked, and how many", rows and all("checkpoint/async" in r for r in rows) and marks >= len(rows) and found.startswith(f"{len(rows)} of "), found)
    page.fill("#find", "<img src=x>")
    none, _, found = page.evaluate(read)
    ok("and none", not none and found.startswith("0 of "), found)
    page.fill("#find", "")
    ok("and all again", page.locator("#lines > div").count() >= len(rows))


def look_at_machines():
    cells = page.locator("#nodes tr").first.locator("td").all_text_contents()
    s = json.load(urlopen(url + "status"))["nodes"][0]["machine"]
    ok("each node: processors, memory, disk, network", re.fullmatch(r"\d+ %", cells[4]) and re.fullmatch(r"\d+ % of [\d.]+ [GT]iB", cells[5]) and all(" / " in c and "–" not in c for c in cells[6:]) and 0 <= s["cpu_utilisation"] <= 1, f"{cells} {s}")


def look_at_view():
    """Stored runs next to each other: done, failed, still training, with a record that no run writes."""
    took = wait_until(20, lambda: page.locator("#runs tr").count() == 4 and "done" in text("runs") and "failed" in text("runs"))
    rows = [r.locator("td").all_text_contents() for r in page.locator("#runs tr").all()]
    ok("stored runs: a row for each, with how it ended", took is not None and rows[0][2] == "done" and rows[0][3] == "40 of 40" and rows[1][2] == "failed (79)" and rows[2][2] == "no end recorded", str(rows))
    ok("a folder's name is text", rows[0][1] == "a <b>done", rows[0][1])
    lines = lambda: page.evaluate("() => [...document.querySelectorAll('figure:not([hidden]) .plot')][0].querySelectorAll('path.line').length")
    wait_until(5, lambda: lines() >= 3)
    all_n = lines()
    page.uncheck("#runs tr:nth-child(1) input")
    ok("their curves are in one chart; a tick takes one away", all_n >= 3 and lines() < all_n and len(page.evaluate("() => [...new Set([...document.querySelectorAll('path.line')].map(e => getComputedStyle(e).stroke))]")) >= 2, f"{all_n} → {lines()}")
    page.check("#runs tr:nth-child(1) input")
    ok("done, and of which folder", text("phase") == "done" and "a <b>done" in text("where") and "40 steps are done" in text("say"), text("say"))
    ok("samples, events, log and settings of a run that has ended", "after step 40" in text("samples") and "done" in text("events") and "checkpoint/async" in text("lines") and "SAMPLE_EVERY" in text("settings"))
    look_at_contrast("stored runs")
    page.screenshot(path=f"{folder}/view.png", full_page=True)
    page.click("#runs tr:nth-child(2) button")
    ok("another one, failed: code and reason", text("phase") == "failed (79)" and page.is_visible("#failure") and "not finite" in text("failure-text") + text("failure-advice"), text("failure-text"))
    page.click("#runs tr:nth-child(3) button")
    ok("one without an end: said", text("phase") == "no end recorded" and "It still runs, or it ended without a record" in text("say"), text("say"))
    page.click("#runs tr:nth-child(4) button")
    wait_until(5, lambda: "no run writes" in text("alerts"))
    ok("one with nonsense in its record: said, and the page goes on", "no run writes" in text("alerts") and page.locator("#runs tr").count() == 4, text("alerts"))


def look_at_ends():
    def failed(s):
        s.update(phase="failed", error={"code": 74, "message": "cannot write <b>/ck/step-00000100</b>: No space left on device; free some", "node": 0})

    def hung(s):
        s["ranks"][1].update(state="hung", call="all_reduce", call_age_seconds=31.5)

    def lost(s):
        s.update(n_nodes=2, phase="recovering")
        s["checkpoint"]["resume_step"] = 40
        s["ranks"].append(dict(s["ranks"][0], rank=2, node=1, state="lost", step=17, compute_ms=None, comm_ms=None, wait_ms=None, memory_bytes=None, heard_age_seconds=8.2))
        s["nodes"] = [dict(node_id=0, address="10.0.0.1", state="joined", heartbeat_age_seconds=0), dict(node_id=1, address="10.0.0.2", state="lost", heartbeat_age_seconds=8.2)]
    with_status(failed)
    ok("failed: said with the error in full, its code and what that asks for, as text", text("phase") == "failed (74)" and "Exit code 74" in text("say") and page.is_visible("#failure") and
       "<b>/ck/step-00000100</b>: No space left on device; free some" in text("failure-text") and "Repair the storage" in text("failure-advice"), text("failure-text"))
    page.screenshot(path=f"{folder}/failed.png", full_page=True)
    with_status(hung)
    ok("hung: which rank, in which call", "Hung: rank 1" in text("alerts") and "all_reduce for 31 s" in text("ranks"), text("alerts"))
    look_at_contrast("trouble")
    with_status(lost)
    ok("recovering: which node is missing", text("phase") == "recovering" and "missing: node 1" in text("say") and "node 1 (lost" in text("alerts") and "Resuming from the checkpoint of step 40." in text("say"), text("say"))
    gone = page.locator("#ranks tr.gone")
    ok("its ranks are greyed, lost, with since when", gone.count() == 1 and "lost, last seen 8 s ago" in gone.text_content(), str(gone.all_text_contents()))
    ok("and no speed is shown that there is not", text("tokens_per_second") == "–" and text("step_ms") == "–", text("tokens_per_second_note"))
    def anew(s):
        lost(s)
        s["checkpoint"]["resume_step"] = 0
    with_status(anew)
    ok("without a checkpoint: from the beginning", "Resuming from the beginning (step 0): there is no checkpoint." in text("say"), text("say"))
    page.screenshot(path=f"{folder}/recovering.png", full_page=True)
    def many(s):
        s["phase"] = "training"
        s["ranks"] = [dict(base["ranks"][0], rank=i, node=i // 8, state="recovering" if i == 333 else s["phase"], compute_ms=50 + i % 7) for i in range(512)]
        s["nodes"] = [dict(node_id=i, address=f"10.0.0.{i}", state="joined" if i != 41 else "suspect", heartbeat_age_seconds=0.1) for i in range(64)]
    with_status(many)
    first = page.locator("#ranks tr").first.locator("td").first.text_content()
    ok("of 512 ranks the one that is not as the rest comes first, and the slowest", first == "333" and page.locator("#ranks tr").count() == 64 and text("ranks-more").startswith("and 448 more") and "node 41 (suspect" in text("alerts"))
    look_at_gpus()
    look_at_check()
    note = "DEVICE=auto uses the CPU: <b>why</b>"
    with_status(lambda s: s.update(device_note=note))
    ok("why it is not a GPU: said", note in text("alerts"), text("alerts"))
    with_status(lambda s: s.update(phase="done", step=s["steps"], device_note=note))
    ok("after the end, too", text("alerts") == note, text("alerts"))
    with_status(lambda s: s.update(phase="done", step=s["steps"]))
    took = wait_until(5, lambda: text("phase") == "done" and "steps are done" in text("say"))
    ok("done: said", took is not None, text("say"))
    page.unroute("**/status")


def keep_status(of, request):
    try:
        statuses.append(request.response().json())
    except Exception:
        if not of.is_closed(): # an answer to a page that was closed meanwhile is gone
            raise


def open_page(scheme, width, height, address=url):
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": height}, device_scale_factor=2 if width < 500 else 1)
    new = context.new_page()
    new.set_default_timeout(30000 * slow())
    new.on("console", lambda m: said.append(f"{m.type}: {m.text}") if m.type in ("error", "warning") else None)
    new.on("pageerror", lambda e: said.append(f"exception: {e}"))
    new.on("request", lambda r: asked.append(r.url))
    new.on("requestfinished", lambda r: keep_status(new, r) if r.url.endswith("/status") else None)
    answer = new.goto(address)
    return new, answer


with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", timeout=30000 * slow(), args=["--no-sandbox", "--disable-gpu"])
    said, asked, statuses = [], [], []
    page, answer = open_page("light", 1280, 900)
    policy = answer.headers["content-security-policy"]
    ok("a strict Content-Security-Policy", policy.startswith("default-src 'none'; script-src 'sha256-") and "unsafe" not in policy and "*" not in policy and "http" not in policy)
    look_at_values(statuses)
    look_at_curves()
    look_at_extras()
    look_at_zoom()
    look_at_search()
    look_at_machines()
    look_at_keyboard()
    look_at_failure()
    look_at_contrast("light")
    page.screenshot(path=f"{folder}/light.png", full_page=True)
    page.close()
    page, _ = open_page("dark", 1280, 900)
    wait_shown(statuses)
    look_at_contrast("dark")
    page.screenshot(path=f"{folder}/dark.png", full_page=True)
    base = statuses[-1]
    look_at_ends()
    page.close()
    page, _ = open_page("light", 390, 844)
    wait_shown(statuses)
    wide = page.evaluate("() => [document.documentElement.scrollWidth, innerWidth, document.querySelector('.page').scrollWidth]")
    ok("phone: nothing is wider than the screen", wide[0] <= 390 and wide[2] <= 390, str(wide))
    tops = page.evaluate("() => ['state', 'events-card', 'checkpoint-card', 'now', 'course', 'ranks-title'].map(id => document.getElementById(id).getBoundingClientRect().top)")
    ok("phone: state, events and checkpoint come first", tops == sorted(tops) and tops[2] < 844, str(tops))
    page.screenshot(path=f"{folder}/phone.png", full_page=True)
    page.close()
    page, _ = open_page("light", 1280, 900, url_joining)
    took = wait_until(10, lambda: text("phase") == "joining" and "missing: node 1" in text("say"))
    ok("joining: said, and who is missing", took is not None, text("say"))
    wait_until(5, lambda: page.locator("figure:visible").count() == 3)
    shown = page.evaluate("() => [...document.querySelectorAll('figure')].filter(f => !f.hidden).map(f => f.querySelector('path.line').getAttribute('d').length)")
    ok("joining: no empty charts, no empty numbers, nodes and events first", len(shown) == 3 and min(shown) > 0 and not page.is_visible("#now") and
       page.evaluate("() => document.getElementById('nodes-title').getBoundingClientRect().top < document.getElementById('course').getBoundingClientRect().top"), str(shown))
    page.screenshot(path=f"{folder}/joining.png", full_page=True)
    os.kill(pid_joining, signal.SIGKILL)
    took = wait_until(12, lambda: text("phase") == "no answer")
    ok("a node that is killed: no answer, with what was known last", took is not None and "Last known: joining" in text("say") and "did not report an end" in text("say"), f"{took and round(took, 1)} s: {text('say')}")
    page.close()
    said = [s for s in said if "ERR_CONNECTION" not in s]
    page, _ = open_page("light", 1280, 900, url_view)
    look_at_view()
    page.close()
    below = [t for s in statuses for r in s["ranks"] for t in (r.get("compute_ms"), r.get("comm_ms"), r.get("wait_ms")) if t is not None and t < 0]
    ok("no part of a step takes less than no time", not below, f"{len(statuses)} statuses" + "".join(f", {t}" for t in below))
    ok("nothing on the console", not said, "; ".join(said[:5]))
    origins = {a.split("/")[2] for a in asked if not a.startswith("data:")}
    ok("no request to anybody else", origins == {u.split("/")[2] for u in (url, url_joining, url_view)}, f"{len(asked)} requests")
    page, _ = open_page("light", 1280, 900)
    wait_shown(statuses)
    os.kill(pid, signal.SIGTERM)
    took = wait_until(20, lambda: text("phase") == "stopped (143)" and "has closed this page" in text("say"))
    ok("a run that was stopped and is gone: how it ended, not that it does not answer", took is not None and "SIGTERM" in text("failure-text") and page.title().startswith("a <b>run: stopped (143)"), f"{took and round(took, 1)} s: {text('phase')}, {text('say')}")
    rest(3000)
    ok("and so it stays", text("phase") == "stopped (143)" and not page.evaluate("() => document.body.classList.contains('stale')"), text("phase"))
    browser.close()
print(f"1..{number}")
