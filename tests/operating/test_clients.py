"""Clients of gRPC that share no code with ours, grpcio and grpc-js, and plain HTTP: what is refused arrives with code, sentence,
reason, fields and details, and the same of each member, whether it leads or passes on what the leader says."""

import atexit
import base64
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
import unittest
import urllib.error
import urllib.request
import uuid

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.rpc import error_details_pb2, status_pb2
from pool import ROOT, Pool, wait

# Method, request, and the reason with which it is refused. `ID` stands for a request id.
ASKED = [
    ("JobService/SubmitJob", {"requestId": "ID", "spec": {}}, "INVALID_FIELD"),
    ("JobService/SubmitJob", {"requestId": "none", "spec": {}}, "REQUEST_ID_INVALID"),
    ("JobService/GetJob", {"jobId": 99}, "JOB_UNKNOWN"),
    ("JobService/CancelJob", {"requestId": "ID", "jobId": 99}, "JOB_UNKNOWN"),
    ("JobService/MoveJob", {"requestId": "ID", "jobId": 99}, "JOB_UNKNOWN"),
    ("JobService/Why", {"jobId": 99}, "JOB_UNKNOWN"),
    ("JobService/StreamLogs", {"jobId": 99}, "JOB_UNKNOWN"),
    ("JobService/WatchJobs", {"resumeToken": "none"}, None),
    ("QueueService/RemoveQueue", {"requestId": "ID", "name": "nowhere"}, "QUEUE_UNKNOWN"),
    ("QueueService/SetQueue", {"requestId": "ID", "queue": {"name": ""}}, "INVALID_FIELD"),
    ("PoolService/CordonNode", {"requestId": "ID", "node": {"name": "nowhere"}}, "NODE_UNKNOWN"),
    ("PoolService/SetPoolConfig", {"requestId": "ID", "config": {}}, "INVALID_FIELD"),
]
DETAILS = "grpc-status-details-bin"
# Metadata that say of which moment the answer is, which is another one for each call.
OF_THE_MOMENT = ("revision", "age_seconds")


def request_id():
    """A UUID of version 7."""
    raw = bytearray(int(time.time() * 1000).to_bytes(6, "big") + os.urandom(10))
    raw[6], raw[8] = raw[6] & 0x0F | 0x70, raw[8] & 0x3F | 0x80
    return str(uuid.UUID(bytes=bytes(raw)))


class Methods:
    """What the services offer, read from the protocol files."""

    def __init__(self, folder):
        built = folder / "proto.binpb"
        subprocess.run(["buf", "build", str(ROOT / "proto"), "-o", str(built)], check=True)
        files = descriptor_pb2.FileDescriptorSet.FromString(built.read_bytes())
        self.pool = descriptor_pool.DescriptorPool()
        for file in files.file:
            self.pool.Add(file)

    def request(self, method, fields):
        """Its path, whether it streams, and its request."""
        service, name = method.split("/")
        described = self.pool.FindServiceByName(f"tessera.v1.{service}").methods_by_name[name]
        fields = {key: request_id() if value == "ID" else value for key, value in fields.items()}
        message = message_factory.GetMessageClass(described.input_type)()
        json_format.ParseDict(fields, message)
        return f"/tessera.v1.{method}", described.server_streaming, message.SerializeToString()


def by_grpcio(address, path, stream, request, options=None):
    with grpc.insecure_channel(address, [("grpc.enable_http_proxy", 0), *(options or {}).items()]) as channel:
        ask = channel.unary_stream if stream else channel.unary_unary
        try:
            answer = ask(path, lambda sent: sent, lambda received: received)(request, timeout=10)
            if stream:
                list(answer)
        except grpc.RpcError as error:
            status = dict(error.trailing_metadata() or ()).get(DETAILS, b"")
            return {"code": error.code().value[0], "details": error.details(), "status": base64.b64encode(status).decode()}
    return {"code": 0, "details": "", "status": ""}


def by_grpc_js(asked):
    text = json.dumps([{**one, "request": base64.b64encode(one["request"]).decode()} for one in asked])
    script = pathlib.Path(__file__).with_name("ask.js")
    environment = {**os.environ, "NODE_PATH": os.environ["TESSERA_GRPC_JS"]}
    done = subprocess.run(["node", str(script)], input=text, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def readable(told):
    """Decodes the status of an answer, because a map has its entries in any order, and leaves out the moment. The details are of
    the kinds in `error_details_pb2`, whose import makes them known here."""
    status = json_format.MessageToDict(status_pb2.Status.FromString(base64.b64decode(told["status"])))
    for detail in status.get("details", []):
        metadata = detail.get("metadata", {})
        metadata.update({key: "" for key in OF_THE_MOMENT if key in metadata})
    return {**told, "status": status}


class Clients(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="tessera-clients-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, True)
        cls.pool = Pool(os.environ["TESSERA_BIN"], cls.folder)
        cls.addClassCleanup(cls.pool.stop)
        # Also when the tests are interrupted.
        atexit.register(cls.pool.stop)
        for number in range(3):
            cls.pool.start_member(number)
        wait("the cluster to be made", lambda: cls.pool.tessera("cluster", "init", check=False).returncode == 0)
        for address in cls.pool.members:
            wait("it to belong to it", lambda: knows_the_pool(address))

    def test_what_is_refused_arrives_whole_at_every_client_of_every_member(self):
        methods = Methods(self.folder)
        for method, fields, reason in ASKED:
            asked = [
                dict(zip(("path", "stream", "request"), methods.request(method, fields), strict=True), address=address)
                for address in self.pool.members
            ]
            # While another leader is elected, each says something else.
            for _ in range(10):
                told = [readable(one) for one in [by_grpcio(**one) for one in asked] + by_grpc_js(asked)]
                if all(one == told[0] for one in told):
                    break
            with self.subTest(method=method):
                self.assertNotEqual(told[0]["code"], 0)
                self.assertEqual([told[0]] * len(told), told)
                if reason:
                    reasons = [detail["reason"] for detail in told[0]["status"]["details"] if "reason" in detail]
                    self.assertEqual([reason], reasons, told[0])

    def test_a_client_that_is_given_all_members_reaches_one_that_is_there(self):
        """As docs/grpc.md says. Nobody listens at the first address."""
        path, stream, request = Methods(self.folder).request("PoolService/GetPool", {})
        target = "ipv4:" + ",".join(["127.0.0.1:1", *self.pool.members])
        asked = {"address": target, "path": path, "stream": stream, "request": request}
        named = {**asked, "options": {"grpc.default_authority": "tessera"}}
        self.assertEqual([0, 0], [told["code"] for told in [by_grpcio(**named), *by_grpc_js([named])]])
        # Without a name the call of grpcio never comes to a member: once it does, the document says too much.
        expected = [grpc.StatusCode.INTERNAL.value[0], 0]
        self.assertEqual(expected, [told["code"] for told in [by_grpcio(**asked), *by_grpc_js([asked])]])

    def test_so_it_does_over_http(self):
        for path, fields in [("jobs", {"spec": {}}), ("jobs/99:cancel", {}), ("nodes/nowhere:cordon", {})]:
            fields = {"requestId": request_id(), **fields}
            told = [refused(f"http://{address}/v1/{path}", fields) for address in self.pool.members]
            with self.subTest(path=path):
                self.assertEqual([told[0]] * len(told), told)
                self.assertGreaterEqual(told[0][0], 400)
                self.assertIn("ErrorInfo", told[0][1])


def knows_the_pool(address):
    """Whether a member passes on what it is asked."""
    told = refused(f"http://{address}/v1/jobs/99:cancel", {"requestId": request_id()})
    return "JOB_UNKNOWN" in told[1]


def refused(url, fields):
    asked = urllib.request.Request(url, json.dumps(fields).encode(), {"content-type": "application/json"}, method="POST")
    try:
        with urllib.request.urlopen(asked, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
