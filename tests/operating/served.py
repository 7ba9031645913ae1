"""Real Prometheus and Alertmanager on loopback for the tests, from the configuration that is shipped, with shorter
times.
"""

import atexit
import contextlib
import http.server
import json
import pathlib
import shutil
import subprocess
import threading
import urllib.error
import urllib.parse
import urllib.request

import yaml
from pool import ROOT, free_port

SHIPPED = ROOT / "deploy" / "prometheus"
# Agents whose cards the stand-ins of vendors' exporters know.
NVIDIA, AMD = "node-0", "node-1"


def get(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


def answers(url):
    """Whether something says at that address that it is ready."""
    with contextlib.suppress(urllib.error.URLError, ConnectionError):
        get(url)
        return True
    return False


class Page(http.server.ThreadingHTTPServer):
    """A server on loopback that gives a page, and keeps what is posted to it."""

    def __init__(self, text=""):
        self.text, self.posts = text, []
        super().__init__(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def stop(self):
        self.shutdown()
        self.server_close()


class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self, text):
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(text.encode())

    def do_GET(self):
        self.answer(self.server.text)

    def do_POST(self):
        self.server.posts.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
        self.answer("")

    def log_message(self, *_):
        """Nothing is to be printed for each request."""


def dcgm(cards):
    """What the DCGM exporter would say of cards with these UUIDs, with its labels and units."""
    metrics = {"GPU_UTIL": 80, "FB_USED": 1024, "POWER_USAGE": 300, "GPU_TEMP": 60, "SM_CLOCK": 1410, "XID_ERRORS": 0}
    return "".join(
        f'DCGM_FI_DEV_{name}{{gpu="{gpu}",UUID="{uuid}",device="nvidia{gpu}",modelName="M",Hostname="h"}} {value}\n'
        for name, value in metrics.items()
        for gpu, uuid in enumerate(cards)
    )


def rocm(cards):
    """What AMD's device metrics exporter would say of cards with these UUIDs."""
    metrics = {"gpu_gfx_activity": 70, "gpu_used_vram": 2048, "gpu_power_usage": 500, "gpu_junction_temperature": 65}
    return "".join(
        f'{name}{{gpu_id="{gpu}",gpu_uuid="{uuid}",hostname="h"}} {value}\n'
        for name, value in metrics.items()
        for gpu, uuid in enumerate(cards)
    )


class Served:
    """Processes that end together, by pid."""

    def __init__(self, folder):
        self.folder, self.processes, self.pages = pathlib.Path(folder), [], []
        atexit.register(self.stop)

    def start(self, name, *arguments, before=()):
        with open(self.folder / f"{name}.log", "ab") as log:
            command = [*before, name, *arguments]
            self.processes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log))

    def page(self, text=""):
        self.pages.append(Page(text))
        return self.pages[-1]

    def stop(self):
        for process in self.processes:
            process.kill()
            process.wait()
        while self.pages:
            self.pages.pop().stop()

    def alertmanager(self, receiver):
        """Starts Alertmanager with the shipped routes, which tells a page on loopback at once."""
        wanted = yaml.safe_load((SHIPPED / "alertmanager.yml").read_text())
        wanted["route"] |= {"group_wait": "0s", "group_interval": "1s"}
        for route in wanted["route"]["routes"]:
            route["group_wait"] = "0s"
        for each in wanted["receivers"]:
            each["webhook_configs"][0]["url"] = f"http://{receiver.address}/{each['name']}"
        file = self.folder / "alertmanager.yml"
        file.write_text(yaml.safe_dump(wanted))
        address = f"127.0.0.1:{free_port()}"
        # Debian's reads a template from /usr/share, where nothing was installed: it gets a /usr/share of its own.
        share = pathlib.Path(shutil.which("prometheus-alertmanager")).resolve().parents[1] / "share"
        mount = [
            "unshare",
            "--user",
            "--map-root-user",
            "--mount",
            "sh",
            "-c",
            'mount --bind "$0" /usr/share && exec "$@"',
            share,
        ]
        self.start(
            "prometheus-alertmanager",
            f"--config.file={file}",
            f"--storage.path={self.folder}/alertmanager",
            f"--web.listen-address={address}",
            "--cluster.listen-address=",
            before=mount,
        )
        return address

    def prometheus(self, pool, alertmanager=None, patience=None):
        """Starts Prometheus with what is shipped; with `patience` alerts wait only so long."""
        wanted = yaml.safe_load((SHIPPED / "prometheus.yml").read_text())
        wanted["global"] |= {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
        rules = []
        for path in sorted((SHIPPED / "rules").glob("*.yml")):
            text = yaml.safe_load(path.read_text())
            for rule in (rule for group in text["groups"] for rule in group["rules"] if patience and "alert" in rule):
                rule["for"] = patience
            rules.append(self.folder / f"rules-{path.name}")
            rules[-1].write_text(yaml.safe_dump(text))
        wanted["rule_files"] = [str(path) for path in rules]
        wanted["alerting"]["alertmanagers"] = (
            [{"static_configs": [{"targets": [alertmanager]}]}] if alertmanager else []
        )
        targets, self.targets = pool.targets(), 0
        uuids = {node: [f"sim-{node}-{card}" for card in range(8)] for node in (NVIDIA, AMD)}
        labels = {"cluster": targets["members"][0]["labels"]["cluster"]}
        targets["dcgm"] = [{"targets": [self.page(dcgm(uuids[NVIDIA])).address], "labels": labels}]
        targets["rocm"] = [{"targets": [self.page(rocm(uuids[AMD])).address], "labels": labels}]
        for scraped in wanted["scrape_configs"]:
            scraped.pop("scrape_interval", None)
            scraped.pop("params", None)
            name = pathlib.PurePath(scraped["file_sd_configs"][0]["files"][0]).stem
            scraped["file_sd_configs"][0]["files"] = [str(self.folder / f"{name}.json")]
            (self.folder / f"{name}.json").write_text(json.dumps(targets[name]))
            self.targets += sum(len(group["targets"]) for group in targets[name])
        file = self.folder / "prometheus.yml"
        file.write_text(yaml.safe_dump(wanted))
        self.address = f"127.0.0.1:{free_port()}"
        self.start(
            "prometheus",
            f"--config.file={file}",
            f"--storage.tsdb.path={self.folder}/prometheus",
            f"--web.listen-address={self.address}",
            "--log.level=warn",
        )

    def ready(self):
        return answers(f"http://{self.address}/-/ready")

    def scrapes_all(self):
        """Whether every target of every scraped job has answered: a member is a target of two of them."""
        return len(self.ask("up == 1")) == self.targets

    def ask(self, expr):
        """The series of a query: a list of labels and numbers."""
        url = f"http://{self.address}/api/v1/query?{urllib.parse.urlencode({'query': expr})}"
        try:
            found = json.loads(get(url))["data"]["result"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"Prometheus refuses {expr}: {error.read().decode()}") from error
        return [(series["metric"], float(series["value"][1])) for series in found]
