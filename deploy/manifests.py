#!/usr/bin/env python3
"""Checks what containers and Kubernetes are told: manifests.py, with TESSERA_BIN naming the binary.

Every overlay is built and held against the schema of Kubernetes, the compose file against its own; selectors, ports and probes
must name what exists, and the binary must understand every command that a container starts it with. What is scraped must
have the labels that rules and dashboards ask for, and what is told to end the time that it needs.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

import yaml

HERE = pathlib.Path(__file__).resolve().parent
OVERLAYS = sorted(path for path in (HERE / "kubernetes" / "overlays").iterdir())
# Not kinds of Kubernetes itself: what they name is checked here, their schema is not.
OPERATOR = "monitoring.coreos.com/v1"
PAGES = {"/livez", "/readyz", "/metrics"}
# With these a Job is replaced by tools that apply a repository, as its template cannot be changed.
REPLACED = {
    "argocd.argoproj.io/hook": "Sync",
    "argocd.argoproj.io/hook-delete-policy": "BeforeHookCreation",
    "kustomize.toolkit.fluxcd.io/force": "enabled",
}

problems = []
checked = 0


def expect(holds, problem):
    global checked
    checked += 1
    if not holds:
        problems.append(problem)


def run(*command, **more):
    return subprocess.run(command, capture_output=True, text=True, check=False, **more)


def understood(where, arguments):
    """Whether the binary knows every option: it reads them all before it shows the help of the command."""
    values = [str(word).replace("$(HOST_IP)", "10.0.0.1").replace("$(POD_IP)", "10.0.0.1") for word in arguments]
    done = run(os.environ["TESSERA_BIN"], *values, "--help")
    expect(done.returncode == 0, f"{where}: the binary refuses {values}: {done.stderr}")


def templates(documents):
    """Every pod that is made, by what makes it."""
    for document in documents:
        if template := (document.get("spec") or {}).get("template"):
            yield document, template


def matching(documents, labels):
    return [
        template for _, template in templates(documents) if labels.items() <= template["metadata"]["labels"].items()
    ]


def ports_of(pods):
    return {
        port[key]
        for pod in pods
        for container in pod["spec"]["containers"]
        for port in container.get("ports", [])
        for key in ("name", "containerPort")
    }


def check_pods(where, documents):
    for document, template in templates(documents):
        spec = template["spec"]
        for container in spec["containers"]:
            name = f"{where}: {document['kind']} {document['metadata']['name']}"
            if "command" not in container:
                understood(name, container["args"])
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                if got := container.get(probe):
                    expect(got["httpGet"]["path"] in PAGES, f"{name}: {probe} asks for a page that there is not")
                    expect(
                        got["httpGet"]["port"] in ports_of([template]),
                        f"{name}: {probe} asks at a port that there is not",
                    )
            volumes = {volume["name"] for volume in spec.get("volumes", [])}
            volumes |= {claim["metadata"]["name"] for claim in document["spec"].get("volumeClaimTemplates", [])}
            for mount in container.get("volumeMounts", []):
                expect(mount["name"] in volumes, f"{name}: no volume {mount['name']}")
            if document["metadata"]["name"] != "agent":
                safe = container["securityContext"]
                expect(
                    safe["capabilities"]["drop"] == ["ALL"]
                    and not safe["allowPrivilegeEscalation"]
                    and spec["securityContext"]["runAsNonRoot"],
                    f"{name}: has more rights than it needs",
                )


def check_references(where, documents):
    services = {document["metadata"]["name"]: document for document in documents if document["kind"] == "Service"}
    for document in documents:
        name, spec = f"{where}: {document['kind']} {document['metadata']['name']}", document.get("spec") or {}
        if document["kind"] == "Service":
            pods = matching(documents, spec["selector"])
            expect(pods, f"{name}: selects nothing")
            for port in spec["ports"]:
                expect(port["targetPort"] in ports_of(pods), f"{name}: no pod has the port {port['targetPort']}")
        if document["kind"] == "StatefulSet":
            service = services.get(spec["serviceName"])
            expect(
                service and service["spec"]["clusterIP"] == "None",
                f"{name}: {spec['serviceName']} is no headless service",
            )
        if document["kind"] == "PodDisruptionBudget":
            expect(matching(documents, spec["selector"]["matchLabels"]), f"{name}: selects nothing")
            expect(
                spec.get("unhealthyPodEvictionPolicy", "IfHealthyBudget") == "IfHealthyBudget",
                f"{name}: drains may take members that are not ready until there is no majority",
            )
        if document["kind"] == "Job":
            expect(
                0 <= spec.get("ttlSecondsAfterFinished", -1) <= 600,
                f"{name}: stays when it is done, and the next release cannot be applied over it",
            )
            expect(
                REPLACED.items() <= document["metadata"].get("annotations", {}).items(),
                f"{name}: tools that apply a repository are not told to replace it",
            )
        if document["kind"] == "NetworkPolicy":
            pods = matching(documents, spec["podSelector"]["matchLabels"])
            expect(pods, f"{name}: selects nothing")
            for rule in spec["ingress"]:
                expect(
                    {port["port"] for port in rule["ports"]} <= ports_of(pods),
                    f"{name}: lets in to a port that there is not",
                )
                if {"http", 7401} & {port["port"] for port in rule["ports"]}:
                    expect(
                        all(peer.get("podSelector", {}).get("matchLabels") for peer in rule.get("from") or [{}]),
                        f"{name}: whole namespaces may read every job",
                    )
        if document["kind"] == "ServiceMonitor":
            found = [
                s
                for s in services.values()
                if spec["selector"]["matchLabels"].items() <= s["metadata"]["labels"].items()
            ]
            ports = {port["name"] for service in found for port in service["spec"]["ports"]}
            expect(
                spec["endpoints"] and {e["port"] for e in spec["endpoints"]} <= ports,
                f"{name}: no such port of a service",
            )
        if document["kind"] == "PodMonitor":
            pods = matching(documents, spec["selector"]["matchLabels"])
            wanted = {endpoint["port"] for endpoint in spec["podMetricsEndpoints"]}
            expect(wanted and wanted <= ports_of(pods), f"{name}: no such port of a pod")


def labels_given(endpoint):
    """The labels that a monitor writes, each with its value, or with what it is taken from."""
    return {
        rule["targetLabel"]: rule.get("replacement") or ", ".join(rule["sourceLabels"])
        for rule in endpoint.get("relabelings", [])
    }


def jobs_asked():
    """The jobs of Prometheus that rules and dashboards ask for, and the labels that the example gives each."""
    files = [*(HERE / "prometheus" / "rules").glob("*.yml"), *(HERE / "grafana" / "dashboards").glob("*.json")]
    asked = {job for file in files for job in re.findall(r'job=\\?"(tessera-[^"\\]+)', file.read_text())}
    scraped = yaml.safe_load((HERE / "prometheus" / "prometheus.yml").read_text())["scrape_configs"]
    targets = {entry["job_name"]: entry["file_sd_configs"][0]["files"][0] for entry in scraped}
    return {
        job: {
            label
            for group in yaml.safe_load((HERE / "prometheus" / targets[job]).read_text())
            for label in group["labels"]
        }
        for job in asked
    }


def check_monitors(where, documents):
    """What is scraped has the labels that rules and dashboards rely on (docs/observability.md)."""
    monitors = [document["spec"] for document in documents if document["apiVersion"] == OPERATOR]
    endpoints = [e for spec in monitors for e in spec.get("endpoints") or spec.get("podMetricsEndpoints")]
    given = [labels_given(endpoint) for endpoint in endpoints]
    asked = jobs_asked()
    expect(asked, "rules and dashboards ask for no job")
    for job, labels in asked.items() if monitors else ():
        found = [one for one in given if one.get("job") == job]
        expect(len(found) == 1, f"{where}: {len(found)} monitors, not one, name the job {job} of rules and dashboards")
        for one in found:
            expect(labels <= set(one), f"{where}: {job} lacks the labels {', '.join(sorted(labels - set(one)))}")


def seconds(text):
    number, unit = re.fullmatch(r"(\d+)(s|min)", text).groups()
    return int(number) * {"s": 1, "min": 60}[unit]


def setting(unit, name):
    return re.search(rf"^{name}=(.+)$", (HERE / "systemd" / unit).read_text(), re.MULTILINE)[1]


def check_time_to_end(documents):
    """Whoever ends a member gives each of its parts the time that it may take, by the code that ends them."""
    code = (HERE.parent / "crates" / "server" / "src" / "member.rs").read_text()
    bound = {
        name: int(found[1])
        for name in ("HANDOVER", "ENDING")
        if (found := re.search(rf"const {name}: Duration = Duration::from_secs\((\d+)\);", code))
    }
    # One in the loop is there for each task: three of every member, and one that founds a cluster.
    expect("for task in self.tasks.drain(..)" in code, "member.rs ends its tasks in another way than is added up here")
    controller = (HERE.parent / "crates" / "controller" / "src" / "controller.rs").read_text()
    tasks = controller.count("tokio::spawn(") + code.count("tasks.push(")
    needed_s = bound["HANDOVER"] * len(re.findall(r"timeout\(HANDOVER,|Instant::now\(\) \+ HANDOVER", code)) + bound[
        "ENDING"
    ] * (len(re.findall(r"timeout\(ENDING,", code)) - 1 + tasks)
    expect(needed_s > 50, f"member.rs ends within {needed_s} s, which cannot be: it is not read right")
    given = {
        "tessera-controller.service": seconds(setting("tessera-controller.service", "TimeoutStopSec")),
        "compose.yaml": seconds(
            yaml.safe_load((HERE / "container" / "compose.yaml").read_text())["x-member"]["stop_grace_period"]
        ),
        "the StatefulSet of members": next(
            template["spec"]["terminationGracePeriodSeconds"]
            for document, template in templates(documents)
            if document["metadata"]["name"] == "member"
        ),
    }
    for where, given_s in given.items():
        expect(given_s > needed_s, f"{where}: a member is killed after {given_s} s, and may need {needed_s} s to end")


def check_overlay(folder):
    built = run("kubectl", "kustomize", str(folder))
    expect(built.returncode == 0, f"{folder.name}: {built.stderr}")
    documents = [document for document in yaml.safe_load_all(built.stdout) if document]
    own = [document for document in documents if document["apiVersion"] != OPERATOR]
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump_all(own, file)
        file.flush()
        valid = run("kubernetes-validate", "--strict", "-k", "1.32", file.name)
    expect(
        valid.returncode == 0 and "WARN" not in valid.stdout + valid.stderr,
        f"{folder.name}: {valid.stdout}{valid.stderr}",
    )
    check_pods(folder.name, documents)
    check_references(folder.name, documents)
    check_monitors(folder.name, documents)
    check_time_to_end(documents)


def check_compose():
    file = HERE / "container" / "compose.yaml"
    valid = run("check-jsonschema", "--builtin-schema", "vendor.compose-spec", str(file))
    expect(valid.returncode == 0, f"compose: {valid.stdout}{valid.stderr}")
    services = yaml.safe_load(file.read_text())["services"]
    for name, service in services.items():
        if "entrypoint" not in service:
            understood(f"compose: {name}", service["command"])
    stages = [
        line.split()[-1]
        for line in (HERE / "container" / "Containerfile").read_text().splitlines()
        if line.startswith("FROM")
    ]
    for name, service in services.items():
        expect(service["build"]["target"] in stages, f"compose: {name}: the Containerfile has no such stage")
    for line in (HERE / "container" / "Containerfile").read_text().splitlines():
        if line.startswith("CMD "):
            understood("Containerfile", yaml.safe_load(line.removeprefix("CMD ")))


def main():
    for folder in OVERLAYS:
        check_overlay(folder)
    check_compose()
    for problem in problems:
        print(f"manifests: {problem.strip()}", file=sys.stderr)
    print(f"manifests: {checked} checks, {len(problems)} failed")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
