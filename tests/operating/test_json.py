"""The JSON face under requests that nobody wrote: schemathesis makes them from the description that a member serves, good and
bad ones, and compares every answer with the description."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest
import urllib.request

from pool import Pool, free_port, wait

# What must hold of every answer. Not asked: that a request which fits the description is carried out, for most name jobs,
# nodes and queues that are not there; nor that one which does not fit is refused, for JSON of protocol buffers lets `null`
# stand for what is left out, whatever the field.
CHECKS = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
]
# Streams end when the asker leaves, which schemathesis does not.
STREAMS = ":watch$|/output$"


class Json(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tessera-json-"))
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.pool = Pool(os.environ["TESSERA_BIN"], self.folder)
        self.addCleanup(self.pool.stop)
        # One member, which cannot be removed, on whose address questions and changes are taken alike.
        self.address = f"127.0.0.1:{free_port()}"
        self.pool.start("m0", "server", "--listen", self.address, "--data-dir", str(self.folder / "m0"))
        wait("the cluster to be made", self.made)

    def made(self):
        command = [os.environ["TESSERA_BIN"], "cluster", "init"]
        environment = {**os.environ, "TESSERA_SERVER": self.address}
        return subprocess.run(command, env=environment, capture_output=True, check=False).returncode == 0

    def test_every_answer_is_as_described(self):
        with urllib.request.urlopen(f"http://{self.address}/v1/openapi.json") as answer:
            (self.folder / "openapi.json").write_bytes(answer.read())
        done = subprocess.run(
            [
                "schemathesis",
                "run",
                str(self.folder / "openapi.json"),
                f"--url=http://{self.address}",
                f"--checks={','.join(CHECKS)}",
                f"--exclude-path-regex={STREAMS}",
                "--phases=coverage,fuzzing",
                "--max-examples=6",
                "--seed=1",
                "--continue-on-failure",
                "--no-color",
            ],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stdout[-20_000:] + done.stderr[-4_000:])
        self.assertIn("Fuzzing", done.stdout)


if __name__ == "__main__":
    unittest.main()
