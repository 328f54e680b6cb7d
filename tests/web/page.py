"""Starts a run with its page, and uses the page as a person would."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

from browser import Browser, program

COMMAND = sys.argv[1]
PICTURES = Path(sys.argv[3]) if sys.argv[2:3] == ["--pictures"] else None
TASK = COMMAND + "-test-task"

WORKFLOW = f"""
workflow: waves
memory: 256 MiB
tasks:
  solve:
    command: [{TASK}, publish, "0"]
    environment: {{FIELD_PAUSE_MS: "40", FIELD_SHAPE: wave}}
    series: {{field: publish}}
  simulate:
    command: "exec {TASK} produce 1000000000"
    regions: {{blocks: create}}
    ports: {{numbers: produce}}
  analyse:
    command: "exec {TASK} consume 1000000000"
    regions: {{blocks: read}}
    ports: {{numbers: consume}}
    items: {{result: own}}
  plot:
    command: "echo begins; while [ ! -e {{FOLDER}}/fail ]; do sleep 0.1; done; echo 'plot <b>gives</b> up'; exit 3"
    series: {{field: observe}}
    items: {{result: read}}
"""


class Run:
    """A run of `crossdock run --web`, in a folder of its own."""

    def __enter__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="crossdock-web-run-"))
        (self.folder / "r").mkdir()
        (self.folder / "waves.yaml").write_text(WORKFLOW.replace("{FOLDER}", str(self.folder)))
        self.environment = {**os.environ, "CROSSDOCK_RUNS": str(self.folder / "r")}
        self.environment.pop("CROSSDOCK_SOCKET", None)
        words = [COMMAND, "run", "waves.yaml", "--engine", "process", "--web", "--web-token", "token", "--show", "quiet"]
        self.process = subprocess.Popen(words, cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        said = self.process.stderr.readline()
        self.url = re.search(r"http://127\.0\.0\.1:\d+/#\w+", said)[0]
        return self

    def ask(self, path, token=True):
        base, secret = self.url.split("#")
        request = urllib.request.Request(base + path, headers={"Authorization": f"Bearer {secret}"} if token else {})
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.communicate(timeout=60)
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)


def check(condition, what):
    if not condition:
        raise AssertionError(what)


def figures_for_programs(run):
    """The state and the metrics need the token, and have the same figures."""
    check(run.ask("api/state", token=False)[0] == 401 and run.ask("metrics", token=False)[0] == 401, "the token is not asked for")
    check((run.folder / "token").stat().st_mode & 0o077 == 0, "others may read the token")
    end = time.monotonic() + 60
    while True:
        state = json.loads(run.ask("api/state")[1])
        ports = [p for d in state["daemons"] for p in d["ports"]]
        if ports and ports[0]["rate"] > 0 and any(s["rate"] > 0 for d in state["daemons"] for s in d["series"]):
            break
        check(time.monotonic() < end, f"no rates: {state}")
        time.sleep(0.2)
    text = run.ask("metrics")[1].decode()
    for name in ["crossdock_port_messages_total", "crossdock_series_versions_total", "crossdock_task_running"]:
        check(re.search(rf"^{name}{{.*workflow=\"waves\".*}} [\d.e]+$", text, re.M), f"no {name}: {text}")


def page_at(run, width, height, dark):
    """Checks the whole page at one size of the window, in dark or light colours."""
    with Browser(width, height, dark, mobile=width < 500) as browser:
        browser.open(run.url)
        browser.until("document.querySelectorAll('#tasks tbody tr').length === 4")
        browser.until("document.querySelectorAll('#flow .node').length === 8")
        browser.until("document.querySelector('#flow .port.moving') && document.querySelector('#flow .series.moving')")
        browser.until("/\\/s/.test(document.querySelector('#flow .port .detail').textContent)")
        dark_now = browser.eval("getComputedStyle(document.body).backgroundColor")
        light = sum(map(int, re.findall(r"\d+", dark_now)[:3])) > 380
        check(light != dark, f"{'dark' if dark else 'light'} is asked for, and the paper is {dark_now}")
        # A click on a series in the list shows the series.
        browser.click("#series button")
        browser.until("/^version \\d+$/.test(document.querySelector('#viewer-version').textContent)")
        browser.until("+document.querySelector('#viewer-slider').max >= 2")
        pixels = ("(() => { const c = document.querySelector('#viewer-canvas');"
                  " return [c.width, c.height, new Set(c.getContext('2d').getImageData(0, 0, c.width, c.height).data).size]; })()")
        browser.until(f"{pixels}[2] > 20")
        # The array of 300 rows and 100 elements is reduced, but the picture keeps its proportions.
        check(browser.eval(pixels)[:2] == [74, 222], f"the picture is {browser.eval(pixels)}")
        ratio = browser.eval("(() => { const c = document.querySelector('#viewer-canvas'); return c.clientHeight / c.clientWidth; })()")
        check(abs(ratio - 3) < 0.1, f"the picture is {ratio} times as high as wide")
        # The slider goes back to an old version. The picture must stay at this version while newer ones come.
        browser.eval("document.querySelector('#viewer-slider').focus()")
        browser.key("Home", 36)
        browser.until("document.querySelector('#viewer-live').getAttribute('aria-pressed') === 'false'")
        number = "+document.querySelector('#viewer-version').textContent.split(' ')[1]"
        browser.until(f"{number} === frames[0].sequence")
        first, most = browser.eval(number), browser.eval("+document.querySelector('#viewer-slider').max")
        browser.until(f"+document.querySelector('#viewer-slider').max > {most}")
        check(browser.eval(number) == first, "the version changed under the slider")
        browser.click("#viewer-live")
        browser.until(f"{number} > {first}")
        # The page shows the log of the task that is chosen in its menu.
        browser.eval("const menu = document.querySelector('#log-task'); menu.value = 'plot'; menu.dispatchEvent(new Event('change'))")
        browser.until("document.querySelector('#log').textContent.includes('begins')")
        check(browser.eval("document.documentElement.scrollWidth") <= width, "the page is wider than the screen")
        wide = browser.eval("[...document.querySelectorAll('.card')].filter(c => [...c.children].some(e => e.scrollWidth > c.clientWidth + 1 && e.id !== 'flow')).map(c => c.id)")
        check(wide == [], f"wider than their card: {wide}")
        check(browser.complaints() == [], browser.complaints())
        strangers = [url for url in browser.requested() if not url.startswith(run.url.split("#")[0])]
        check(strangers == [], f"the page asked for {strangers}")
        check(not any(run.url.split("#")[1] in url.split("#")[0] for url in browser.requested()), "the token went into an address")
        if PICTURES:
            PICTURES.mkdir(parents=True, exist_ok=True)
            browser.eval("scrollTo(0, 0); document.querySelector('#viewer-slider').blur()")
            time.sleep(1.5)
            browser.picture(PICTURES / f"web-{width}-{'dark' if dark else 'light'}.png")


def death_of_a_task(run):
    """The page shows that a task has failed, and shows the task's last output as text and not as markup."""
    with Browser() as browser:
        browser.open(run.url)
        browser.until("document.querySelectorAll('#tasks tbody tr').length === 4")
        browser.eval("const menu = document.querySelector('#log-task'); menu.value = 'plot'; menu.dispatchEvent(new Event('change'))")
        # The run ends with the first failure. A task that ignores the signal keeps the run alive for a moment, because
        # the page polls only once a second.
        (run.folder / "fail").touch()
        browser.until("/failed \\(3\\)|server has ended/.test(document.body.innerText)")
        check(browser.eval("document.querySelector('#log b') === null"), "a log became markup")
        browser.until("/server has ended/.test(document.querySelector('#connection').textContent)")


def wrong_token(run):
    """Without the token the page shows nothing of the run, and says why."""
    with Browser() as browser:
        browser.open(run.url.split("#")[0])
        browser.until("/token is missing or wrong/.test(document.querySelector('#trouble').textContent)")
        check(browser.eval("document.querySelectorAll('#tasks tr').length") == 0, "something is shown")


def main():
    passed = failed = 0
    if program() is None:
        print("no Chromium here: scripts/setup test installs Debian's\nweb: 0 passed, 0 failed, 1 skipped")
        return 0
    with Run() as run:
        cases = [("figures for programs", lambda: figures_for_programs(run)), ("no token", lambda: wrong_token(run))]
        for width, height, dark in [(1280, 900, False), (1280, 900, True), (390, 844, True), (390, 844, False)]:
            name = f"the page at {width} pixels, {'dark' if dark else 'light'}"
            cases.append((name, lambda at=(width, height, dark): page_at(run, *at)))
        cases.append(("the death of a task", lambda: death_of_a_task(run)))
        for name, case in cases:
            try:
                case()
                passed += 1
                print(f"ok      {name}", flush=True)
            except (AssertionError, RuntimeError, OSError) as error:
                failed += 1
                print(f"FAILED  {name}: {error}", flush=True)
    print(f"web: {passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
