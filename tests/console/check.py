"""The console in a real browser, on a real pool: python3 tests/console/check.py --binary TESSERA [--keep FOLDER]

A member and four agents run on loopback with the reference pool and real jobs. Chromium, without a window, opens every view in
light and in dark colours. What must hold: the numbers on the pages are those of the command line; nothing is written to the
browser's console and nothing breaks the content policy; axe-core, where it is given, finds no fault; what happens in the pool
appears by itself; a member that is gone is said to be, and taken up again when it is back; 100,000 cards are drawn and can be
gone through with the keyboard. Screenshots of all views lie in the folder afterwards.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from playwright.sync_api import expect, sync_playwright

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "deploy" / "demo"))

from demo import control_groups, free_port  # noqa: E402  (the folder has to be known first)

NODES = ["node-0", "node-1", "node-2", "node-3"]
PATIENCE = 20_000  # milliseconds
STILL = ("/usage", "/plan", "/reports")  # views of what was asked once
BROWSER = ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"]
AXE_TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]


def wait(what, condition, patience=60):
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        try:
            if answer := condition():
                return answer
        except (RuntimeError, KeyError, TypeError, ValueError):
            pass
        time.sleep(0.05)
    raise AssertionError(f"waited {patience} s in vain for {what}")


class Pool:
    """The processes of the pool; all of them, and only they, are ended by pid."""

    def __init__(self, binary, folder):
        self.binary, self.folder, self.processes = binary, folder, {}
        self.grpc, self.http = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
        self.environment = {**os.environ, "TESSERA_SERVER": self.grpc, "NO_COLOR": "1"}

    def start(self, name, *arguments):
        with open(self.folder / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(
                [self.binary, *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def start_member(self):
        self.start("m0", "server", "--name", "m0", "--listen", self.grpc, "--http", self.http, "--data-dir", str(self.folder / "m0"))

    def start_all(self):
        self.start_member()
        wait("the cluster to be made", lambda: self.tessera("cluster", "init", check=False).returncode == 0)
        for node in NODES:
            config = self.folder / f"{node}.toml"
            config.write_text(f'cgroup_root = "{control_groups(self.folder, node)}"\n')
            self.start(node, "agent", "--run-as", "agent", "--name", node, "--data-dir", str(self.folder / node), "--server",
                       self.grpc, "--inventory", str(ROOT / "deploy/demo/reference-pool.toml"), "--config", str(config))
        wait("four nodes to be ready", lambda: len(self.ask("node", "list")) == 4)

    def tessera(self, *arguments, check=True):
        done = subprocess.run([self.binary, *arguments], env=self.environment, capture_output=True, text=True, check=False)
        if check and done.returncode:
            raise RuntimeError(f"tessera {' '.join(arguments)}: {'; '.join(done.stderr.splitlines())}")
        return done

    def ask(self, *arguments):
        return json.loads(self.tessera(*arguments, "-o", "json").stdout)

    def submit(self, name, command, tflops, **more):
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps({"name": name, "command": command, "virtual_card": {"tflops": tflops}, **more}))
        return int(self.ask("job", "submit", str(path), "--detach")["id"])

    def state(self, job):
        return self.ask("job", "show", str(job))["state"]

    def stop(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 20
        for process in self.processes.values():
            try:
                process.wait(max(deadline - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Browser:
    """A page of the console, and everything it complains about."""

    def __init__(self, playwright, pool, chromium, axe, keep):
        self.browser = playwright.chromium.launch(executable_path=chromium, args=BROWSER)
        self.pool, self.axe, self.keep = pool, axe, keep
        self.faults, self.forgiven = [], False

    def page(self, scheme):
        context = self.browser.new_context(color_scheme=scheme, viewport={"width": 1440, "height": 900})
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda said: self.fault(f"{said.type}: {said.text}") if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: self.fault(f"exception: {error}"))
        return page

    def fault(self, text):
        if not self.forgiven:
            self.faults.append(text)

    def open(self, page, view):
        page.goto(f"http://{self.pool.http}/console/#{view}")
        expect(page.locator("h1")).to_be_visible(timeout=PATIENCE)
        if not view.startswith(STILL):
            expect(page.locator("#link")).to_have_attribute("data-state", "live", timeout=PATIENCE)

    def look(self, page, name):
        """Keeps a picture, and has axe-core look for what some people could not use."""
        page.screenshot(path=self.keep / f"{name}.png", full_page=True)
        if self.axe:
            page.evaluate(self.axe)
            found = page.evaluate("tags => axe.run({ runOnly: tags }).then((all) => all.violations)", AXE_TAGS)
            for violation in found:
                places = [node["html"][:120] + " " + node.get("failureSummary", "") for node in violation["nodes"][:3]]
                self.fault(f"{name}: {violation['id']}: {violation['help']}: {places}")


def same(what, shown, told):
    assert shown == told, f"{what}: the console shows {shown!r}, the command line says {told!r}"


def number(page, selector):
    return int(page.locator(selector).first.inner_text().replace(",", ""))


def check_views(pool, browser, jobs):
    """Every view in both schemes, each with something that it must show."""
    views = {
        "overview": ("/", "Needs attention"), "map": ("/map", "4 nodes"), "map-queue": ("/map?colour=queue", "Queues:"),
        "map-use": ("/map?colour=work", "Of what jobs hold of a card"),
        "jobs": ("/jobs", "sleeper"), "jobs-waiting": ("/jobs?states=pending", "too-much"), "job": (f"/jobs/{jobs['sleeper']}", "Where it is"),
        "job-waiting": (f"/jobs/{jobs['too-much']}", "Why it waits"), "job-failed": (f"/jobs/{jobs['broken']}", "Attempts"),
        "queues": ("/queues", "research"), "usage": ("/usage?by=queue", "Block-hours"), "nodes": ("/nodes", "node-3"), "node": ("/nodes/node-1", "Cards"),
        "events": ("/events", "What happened"), "control": ("/control", "Agreement"),
        "plan": ("/plan?tflops=4", "start"), "reports": ("/reports", "Report"), "nowhere": ("/nothing", "Not here"),
    }
    for scheme in ("light", "dark"):
        page = browser.page(scheme)
        for name, (view, text) in views.items():
            if name == "nowhere":
                page.goto(f"http://{pool.http}/console/#{view}")
            else:
                browser.open(page, view)
            expect(page.locator("main")).to_contain_text(text)
            browser.look(page, f"{name}-{scheme}")
        page.context.close()


def check_numbers(pool, browser, jobs):
    """What the pages say is what the command line says."""
    page = browser.page("light")
    browser.open(page, "/")
    told = pool.ask("pool", "show")
    for state in ("free", "held", "running", "draining", "lost", "offline"):
        same(f"{state} blocks", number(page, f"[data-blocks={state}]"), told["blocks"][state])
    listed = pool.ask("job", "list")
    for state in ("running", "pending", "failed"):
        same(f"{state} jobs", number(page, f"[data-jobs={state}]"), sum(job["state"] == state for job in listed))
    browser.open(page, "/map")
    for state in ("free", "running"):
        same(f"{state} blocks of the map", number(page, f"[data-blocks={state}]"), told["blocks"][state])
    browser.open(page, "/queues")
    for queue in pool.ask("queue", "list"):
        same(f"jobs of {queue['name']}", number(page, f"[data-queue-jobs='{queue['name']}']"), queue["jobs"])
        used = page.locator(f"[data-queue-used='{queue['name']}']").inner_text()
        same(f"use of {queue['name']}", float(used.split()[0]), queue["used"]["tflops"])
    browser.open(page, "/control")
    leader = pool.ask("cluster", "status")["leader"]
    same("leader", page.locator("[data-leader]").inner_text(), leader["name"] or f"member {leader['id']}")
    browser.open(page, f"/jobs/{jobs['too-much']}")
    same("why it waits", page.locator("[data-constraint]").get_attribute("data-constraint"),
         pool.ask("job", "why", str(jobs["too-much"]))["explanation"]["constraint"])
    expect(page.locator("main")).to_contain_text("Output")
    wait("the use of a job to be told", lambda: pool.ask("job", "show", str(jobs["sleeper"]))["used"]["measured_workers"] == 1)
    browser.open(page, f"/jobs/{jobs['sleeper']}")
    used = pool.ask("job", "show", str(jobs["sleeper"]))["used"]
    expect(page.locator("[data-use]")).not_to_have_text("0 %")
    shown = float(page.locator("[data-use]").inner_text().split()[0])
    # Simulated cards swing, and a reading lies between the two looks.
    assert abs(shown - 100 * used["utilization"]) < 15, f"the console shows {shown} %, the command line says {used}"
    expect(page.locator("main")).to_contain_text("Memory in use")
    browser.open(page, "/map?colour=work")
    on = pool.ask("job", "show", str(jobs["sleeper"]))["allocation"]["workers"][0]
    page.locator("input[name=find]").fill(on["node"])
    page.locator("input[name=find]").press("Enter")
    for _ in range(on["slices"][0]["card"]):
        page.keyboard.press("ArrowRight")
    expect(page.locator("#map-status")).to_contain_text("of what is granted computes")
    browser.open(page, f"/jobs/{jobs['talker']}")
    expect(page.locator("pre.output")).to_contain_text("hello from a worker")
    browser.open(page, f"/jobs/{jobs['broken']}")
    expect(page.locator("main")).to_contain_text(r"turned\u{202e}round\u{1b}[2J")
    page.context.close()


def check_plan(pool, browser):
    """A plan says what the command line says of the same job, and leaves nothing behind."""
    page = browser.page("light")
    for tflops in ("4", "5000"):
        job = pool.folder / "plan.json"
        job.write_text(json.dumps({"name": "plan", "command": ["true"], "virtual_card": {"tflops": float(tflops)}}))
        told = json.loads(pool.tessera("job", "plan", str(job), "-o", "json", check=False).stdout)["verdict"]
        browser.open(page, f"/plan?tflops={tflops}")
        shown = page.locator("[data-verdict]").get_attribute("data-verdict")
        same(f"what becomes of {tflops} TFLOPS", shown.removeprefix("PLAN_VERDICT_").lower(), told)
    assert all(job["name"] != "plan" for job in pool.ask("job", "list")), "a plan was submitted"
    page.context.close()


def check_reports(pool, browser):
    """The figures of a report are those that the simulation printed."""
    jobs, report = pool.folder / "jobs.csv", pool.folder / "report.json"
    jobs.write_text("job,cards,card_milli,cpu_milli,memory_mib,submitted_s,runtime_s\n" + "".join(
        f"j{number},1,{100 + number % 7 * 100},1000,1024,{number * 30},{600 + number % 11 * 300}\n" for number in range(120)))
    report.write_text(pool.tessera("simulate", "--cluster", "2x4", "--jobs", str(jobs), "--policy", "tessera,fgd", "--json").stdout)
    runs = json.loads(report.read_text())
    page = browser.page("light")
    browser.open(page, "/reports")
    page.locator("input[name=report]").set_input_files(str(report))
    expect(page.locator("svg.chart")).to_have_count(3)
    shown = page.locator("[data-figure='Jobs completed']").all_inner_texts()
    same("jobs completed", shown, [f"{run['completed']} of {run['jobs']}" for run in runs])
    browser.look(page, "report-light")
    page.locator("input[name=report]").set_input_files(str(jobs))
    expect(page.locator("main")).to_contain_text("This is no report")
    page.context.close()


def check_live(pool, browser):
    """What happens appears by itself, and the page does not ask again and again where nothing does."""
    page = browser.page("light")
    browser.open(page, "/jobs")
    late = pool.submit("latecomer", ["sleep", "600"], 1)
    expect(page.locator("main")).to_contain_text("latecomer")
    page.locator("select[name=states]").select_option("running")
    expect(page).to_have_url(f"http://{pool.http}/console/#/jobs?states=running")
    expect(page.locator("main")).to_contain_text("latecomer")
    browser.open(page, f"/jobs/{late}")
    expect(page.locator("main .lead")).to_contain_text("running")
    pool.tessera("job", "cancel", str(late), "--yes")
    expect(page.locator("main .lead")).to_contain_text("cancelled")
    browser.open(page, "/map")
    before = number(page, "[data-blocks=running]")
    another = pool.submit("another", ["sleep", "600"], 3)
    expect(page.locator("[data-blocks=running]")).to_have_text(str(before + 3))
    page.keyboard.press("Tab")
    page.locator("canvas").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#map-status")).to_contain_text(", card 0 (")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#map-status")).to_contain_text(", card 1 (")
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_contain_text("Block numbers")
    pool.tessera("job", "cancel", str(another), "--yes")
    expect(page.locator("[data-blocks=running]")).to_have_text(str(before))
    # A map that is not shown, or no longer, is not drawn; shown again, it is.
    page.evaluate("document.querySelector('.map').style.display = 'none'")
    page.evaluate("document.querySelector('canvas').width = 1")
    page.evaluate("new Promise((then) => requestAnimationFrame(() => requestAnimationFrame(then)))")
    page.evaluate("document.querySelector('.map').style.display = ''")
    expect(page.locator("canvas")).not_to_have_js_property("width", 1)
    pool.tessera("node", "cordon", "node-2", "--reason", "fan is loud")
    browser.open(page, "/")
    expect(page.locator(".attention")).to_contain_text("fan is loud")
    pool.tessera("node", "uncordon", "node-2")
    expect(page.locator("main")).not_to_contain_text("fan is loud")
    page.context.close()


def check_many(pool, browser):
    """100,000 cards of a made-up pool, put before the page in place of the real one's map."""
    nodes, each = 10_000, 10
    cards = nodes * each
    columns = {name: [0] * cards for name in ("model", "held", "draining", "lost", "offline", "queue")}
    columns |= {"index": [card % each for card in range(cards)], "offered": [100] * cards,
                "running": [card * 37 % 101 for card in range(cards)]}
    columns["free"] = [100 - running for running in columns["running"]]
    columns["job"] = [1 + card // 8 if running else 0 for card, running in enumerate(columns["running"])]
    columns["jobs"] = [int(job > 0) for job in columns["job"]]
    columns["busy"] = [255 if not running else card % 21 * 5 for card, running in enumerate(columns["running"])]
    columns["lost"][5] = columns["free"][5]
    columns["free"][5] = 0
    whole = {"revision": "1", "nodes": [[f"n{node}", "NODE_STATE_READY", "ELIGIBILITY_ELIGIBLE", each] for node in range(nodes)],
             "models": ["X1"], "queues": ["default"], "cards": columns}
    page = browser.page("dark")
    body = f"event: map\ndata: {json.dumps(whole)}\n\n"
    page.add_init_script("""requestAnimationFrame(function look() {
        if (document.querySelector("canvas[data-millis]")) window.mapAt = performance.now(); else requestAnimationFrame(look); });""")
    page.route("**/v1/map:watch", lambda route: route.fulfill(status=200, content_type="text/event-stream", body=body))
    page.goto(f"http://{pool.http}/console/#/map")
    expect(page.locator("#map-status")).to_contain_text("100,000 cards")
    expect(page.locator("canvas[data-millis]")).to_be_attached()  # it is drawn in the next frame
    same("running blocks", number(page, "[data-blocks=running]"), sum(columns["running"]))
    painted = page.evaluate("""() => { const canvas = document.querySelector("canvas"), pixels = canvas.getContext("2d")
        .getImageData(0, 0, canvas.width, canvas.height).data, seen = new Set();
        for (let at = 0; at < pixels.length; at += 4) seen.add(pixels[at] << 16 | pixels[at + 1] << 8 | pixels[at + 2]);
        return seen.size; }""")
    assert painted > 20, f"{painted} colours are on the map of shares of use"
    page.locator("canvas").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    expect(page.locator("#map-status")).to_contain_text("card 0 (X1)")
    page.locator("input[name=find]").fill("n9999")
    page.locator("input[name=find]").press("Enter")
    expect(page.locator("#map-status")).to_contain_text("n9999, card 0")
    millis = float(page.locator("canvas").get_attribute("data-millis"))
    heap = page.evaluate("performance.memory.usedJSHeapSize") / 2**20
    paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    print(f"100,000 cards: first paint after {paint:.0f} ms, map after {page.evaluate('mapAt'):.0f} ms, drawn in {millis} ms, "
          f"{heap:.0f} MiB of the page's memory", flush=True)
    browser.look(page, "map-100000-dark")
    page.context.close()


def check_loss(pool, browser):
    """A member that is gone is said to be; the page goes on when it is back."""
    page = browser.page("light")
    browser.open(page, "/events")
    browser.forgiven = True  # the browser tells of every attempt that fails
    pool.processes["m0"].kill()
    pool.processes["m0"].wait()
    expect(page.locator("#link")).to_have_attribute("data-state", "lost")
    pool.start_member()
    expect(page.locator("#link")).to_have_attribute("data-state", "live")
    browser.forgiven = False
    back = wait("a job to be taken", lambda: pool.submit("after-the-loss", ["true"], 1))
    expect(page.locator("main")).to_contain_text(f"job {back}")
    page.context.close()


def run(pool, browser):
    pool.start_all()
    pool.tessera("queue", "set", "research", "--guaranteed-tflops", "50", "--guaranteed-memory", "64GiB", "--weight", "2")
    jobs = {
        "sleeper": pool.submit("sleeper", ["sleep", "600"], 20, queue="research"),
        "talker": pool.submit("talker", ["sh", "-c", "echo hello from a worker; sleep 600"], 5),
        "gang": pool.submit("gang", ["sleep", "600"], 8, gang=4),
        "broken": pool.submit("broken", ["false", "turned\u202eround\u001b[2J"], 1),
    }
    for name in ("sleeper", "talker", "gang"):
        wait(f"{name} to run", lambda name=name: pool.state(jobs[name]) == "running")
    wait("the broken job to fail", lambda: pool.state(jobs["broken"]) == "failed")
    # As much as the pool has, on cards of which some are taken: it waits until the others have ended.
    jobs["too-much"] = pool.submit("too-much", ["sleep", "600"], 25)
    jobs["too-much"] = wait("a job to wait", lambda: fill_up(pool, jobs["too-much"]))
    for name, check in [
        ("views", lambda: check_views(pool, browser, jobs)), ("numbers", lambda: check_numbers(pool, browser, jobs)),
        ("plan", lambda: check_plan(pool, browser)), ("reports", lambda: check_reports(pool, browser)),
        ("live", lambda: check_live(pool, browser)), ("many", lambda: check_many(pool, browser)), ("loss", lambda: check_loss(pool, browser)),
    ]:
        began = time.monotonic()
        check()
        print(f"{name}: {time.monotonic() - began:.1f} s", flush=True)


def fill_up(pool, job):
    """A job that waits, once no card has room for one more of the largest kind."""
    wait(f"job {job} to be decided", lambda: pool.state(job) in ("running", "pending"))
    for _ in range(20):
        if pool.state(job) == "pending" and not pool.ask("job", "why", str(job))["explanation"] is None:
            return job
        job = pool.submit("too-much", ["sleep", "600"], 25)
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True)
    parser.add_argument("--chromium", default=shutil.which("chromium"))
    parser.add_argument("--axe", type=pathlib.Path, help="axe.min.js of the npm package axe-core")
    parser.add_argument("--keep", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()) / "tessera-console")
    arguments = parser.parse_args()
    arguments.keep.mkdir(parents=True, exist_ok=True)
    axe = arguments.axe.read_text(encoding="utf-8") if arguments.axe else None
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tessera-console-"))
    pool = Pool(arguments.binary, folder)
    try:
        with sync_playwright() as playwright:
            browser = Browser(playwright, pool, arguments.chromium, axe, arguments.keep)
            run(pool, browser)
            browser.browser.close()
    except BaseException:
        print(f"the logs of the pool are in {folder}", file=sys.stderr)
        pool.stop()
        raise
    pool.stop()
    shutil.rmtree(folder, ignore_errors=True)
    for fault in browser.faults:
        print(f"FAULT {fault}", file=sys.stderr)
    print(f"screenshots: {arguments.keep}")
    return 1 if browser.faults else 0


if __name__ == "__main__":
    sys.exit(main())
