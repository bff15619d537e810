"""A store for tests, whose buckets have the same objects. Like a strict store, it decodes and
re-encodes each request, and then checks the signature with botocore's signer. It has the faults
that `fault` names."""
import base64
import datetime
import functools
import hashlib
import json
import os
import signal
import socket
import struct
import sys
import threading
import time
import zlib
from collections.abc import Mapping
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote
from xml.sax.saxutils import escape

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

sys.path.append(str(Path(__file__).resolve().parents[2]))
from bench.harness.gateways import gateways_of  # noqa: E402

DEADLINE_S = 120
SECRET = "s3cr3t/+="
MODIFIED = 1_700_000_000


def end_gateways(command: Path):
    """Ends these gateways cleanly, so that they remove their caches and sockets."""
    for pid in gateways_of(command):
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + DEADLINE_S
    while gateways_of(command):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{command} gateway does not end")
        time.sleep(0.02)


@functools.lru_cache(maxsize=8)  # otherwise each request for a range would hash the whole object
def md5_of(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


class FolderObjects(Mapping):
    """The files below a directory as objects, and its directories as objects of no bytes."""

    def __init__(self, folder: Path):
        self.folder = folder

    def __getitem__(self, key: str) -> bytes:
        path = self.folder / key
        if path.is_dir() != key.endswith("/") or not path.exists():
            raise KeyError(key)
        return b"" if path.is_dir() else path.read_bytes()

    def below(self, prefix: str) -> list[str]:
        """Returns the keys with this prefix, which must name a directory, as one listing returns
        them."""
        if not (self.folder / prefix).is_dir():
            return []
        entries = os.scandir(self.folder / prefix)
        names = [prefix + entry.name + "/" * entry.is_dir() for entry in entries]
        return sorted([prefix, *names] if prefix else names, key=str.encode)

    def __iter__(self):
        raise NotImplementedError

    def __len__(self):
        raise NotImplementedError


class Store:

    def __init__(self, objects=None):
        self.objects: Mapping[str, bytes] = {} if objects is None else objects
        self.modified = MODIFIED  # the modification time of all objects
        self.page = 1000  # the most keys in one page of a listing
        self.region = "eu-central-1"
        self.others: dict[str, str] = {}  # the regions of buckets beside "bucket"
        self.clock_ahead = 0
        self.is_public = self.endless = self.expire_first_token = False
        self.ignores_ranges = self.ignores_if_match = self.weak_etags = False
        self.fault: list[str] = []  # of the next requests for objects or listings
        self.checksums = None  # headers of objects, instead of x-amz-checksum-crc32
        self.listing = None  # if set, the text of every listing
        self.before_listing = None  # called between the making and the sending of a listing
        self.log: list[tuple[str, str]] = []  # the kind of each request, and its key or prefix
        self.ranges: list[tuple[str, int, int]] = []  # key, begin, end of the ranges given
        self.given = 0  # bytes of objects
        self.refused: list[str] = []
        self.last_headers: dict[str, str] = {}
        self._after = []
        self.lock = threading.Lock()
        store = self

        class Handler(Answer):
            store_of_test = store

        class Server(ThreadingHTTPServer):
            request_queue_size = 128  # a client opens many connections at the same time

        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *_: None  # ignores errors of connections that the test
                                                    # has broken
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.ended = threading.Event()
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self):
        self.ended.set()
        self.server.shutdown()
        self.server.server_close()

    def keys(self, prefix: str) -> list[str]:
        if isinstance(self.objects, FolderObjects):
            return self.objects.below(prefix)
        return [key for key in sorted(self.objects, key=str.encode) if key.startswith(prefix)]

    def environment(self) -> dict[str, str]:
        """Returns the variables with which a program finds this store and may read it."""
        return {
            "AWS_ENDPOINT_URL": self.url, "AWS_REGION": self.region, "AWS_ACCESS_KEY_ID": "KEY",
            "AWS_SECRET_ACCESS_KEY": SECRET
        }

    def region_of(self, bucket: str) -> str:
        return self.others.get(bucket, self.region)

    def requests(self, kind: str) -> int:
        return sum(one == kind for one, _ in self.log)

    def after(self, answers: int, change):
        """Calls `change` after this many further requests for objects."""
        self._after.append([answers, change])

    def note_asked(self):
        with self.lock:
            for row in self._after:
                row[0] -= 1
                if row[0] == 0:
                    row[1]()


def error_document(code: str, extra: str = "") -> bytes:
    return (f"<?xml version='1.0' encoding='UTF-8'?><Error><Code>{code}</Code>"
            f"<Message>of the test</Message>{extra}</Error>").encode()


class Answer(BaseHTTPRequestHandler):
    store_of_test: Store
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # sends a body immediately after its head

    def log_message(self, *_):
        pass

    def send(self, status: int, body: bytes, headers=(), length=None):
        self.send_response_only(status)
        self.send_header("date",
                         formatdate(time.time() + self.store_of_test.clock_ahead, usegmt=True))
        for name, value in headers:
            self.send_header(name, value)
        if status != 304:
            self.send_header("content-length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def deny(self, status: int, code: str, extra: str = "", headers=()):
        self.send(status, error_document(code, extra), headers)

    def reset(self):
        """Ends the connection by RST."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RD)
        self.rfile.close()
        self.wfile.close()
        self.connection.close()

    def has_good_signature(self) -> bool:
        store = self.store_of_test
        authorization = self.headers.get("authorization")
        store.last_headers = {name.lower(): value for name, value in self.headers.items()}
        if authorization is None:
            if not store.is_public:
                self.deny(403, "AccessDenied")
            return store.is_public
        fields = dict(
            part.strip().split("=", 1) for part in authorization.split(" ", 1)[1].split(","))
        key, _, region, service, _ = fields["Credential"].split("/")
        signed = fields["SignedHeaders"].split(";")
        sent = time.mktime(time.strptime(self.headers["x-amz-date"],
                                         "%Y%m%dT%H%M%SZ")) - time.timezone
        if abs(sent - time.time() - store.clock_ahead) > 900:
            self.deny(403, "RequestTimeTooSkewed")
            return False
        wanted = store.region_of(unquote(self.path.partition("?")[0]).split("/")[1])
        if region != wanted or service != "s3":
            self.deny(400, "AuthorizationHeaderMalformed", f"<Region>{wanted}</Region>")
            return False
        if store.expire_first_token and self.headers.get("x-amz-security-token") == "TOKEN":
            self.deny(400, "ExpiredToken")
            return False
        path, _, query = self.path.partition("?")
        anew = quote(unquote(path), safe="/~")
        request = AWSRequest(
            self.command, f"http://{self.headers['host']}{anew}",
            {name: self.headers[name] for name in signed},
            params=dict(parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))))
        request.context["timestamp"] = self.headers["x-amz-date"]
        signer = S3SigV4Auth(Credentials("KEY", SECRET), "s3", region)
        canonical = signer.canonical_request(request)
        good = signer.signature(signer.string_to_sign(request, canonical), request)
        is_all_signed = "host" in signed and all(
            name.lower() in signed for name in self.headers if name.lower().startswith("x-amz-"))
        if key == "KEY" and good == fields["Signature"] and is_all_signed:
            return True
        store.refused.append(f"{self.path}: {canonical}")
        self.deny(403, "SignatureDoesNotMatch")
        return False

    def do_GET(self):
        if self.path.startswith("/-/"):
            return self.give_keys()
        if not self.has_good_signature():
            return self.note("GET", "")
        path, _, query = self.path.partition("?")
        bucket, _, key = unquote(path).lstrip("/").partition("/")
        if bucket != "bucket" and bucket not in self.store_of_test.others:
            self.note("NO_BUCKET", bucket)
            return self.deny(404, "NoSuchBucket")
        if "list-type" in query:
            self.note("LIST", query)
            if self.take_fault() != "403":
                return self.list(dict(parse_qsl(query)))
            return self.deny(403, "AccessDenied")
        self.note("GET", key)
        self.get(key)

    def do_HEAD(self):
        self.note("HEAD", self.path)
        self.send(405, b"")

    def note(self, kind: str, key: str):
        with self.store_of_test.lock:
            self.store_of_test.log.append((kind, key))

    def take_fault(self):
        with self.store_of_test.lock:
            return self.store_of_test.fault.pop(0) if self.store_of_test.fault else None

    def list(self, query: dict[str, str]):
        store = self.store_of_test
        if store.listing is not None:
            return self.send(200, store.listing.encode())
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        names = []
        for key in store.keys(prefix):
            end = key.find(delimiter, len(prefix)) if delimiter else -1
            name = key if end < 0 else key[:end + 1]
            if name not in names:
                names.append(name)
        begin = int(query.get("continuation-token", "0"))
        most = min(store.page, int(query.get("max-keys", 1000)))
        rows = names[begin:begin + most]
        is_truncated = store.endless or begin + most < len(names)
        text = [
            "<?xml version='1.0' encoding='UTF-8'?>",
            "<ListBucketResult xmlns='http://s3.amazonaws.com/doc/2006-03-01/'>",
            f"<IsTruncated>{str(is_truncated).lower()}</IsTruncated>"
        ]
        if is_truncated:
            token = 1 if store.endless else begin + most
            text.append(f"<NextContinuationToken>{token}</NextContinuationToken>")
        modified = datetime.datetime.fromtimestamp(store.modified, datetime.timezone.utc)
        for name in rows:
            shown = escape(name).replace("\x01", "&#x1;")
            if delimiter and name.endswith(delimiter) and name != prefix:
                text.append(f"<CommonPrefixes><Prefix>{shown}</Prefix></CommonPrefixes>")
                continue
            content = store.objects[name]
            etag = md5_of(content)
            text.append(f"<Contents><Key>{shown}</Key><Size>{len(content)}</Size>"
                        f"<LastModified>{modified:%Y-%m-%dT%H:%M:%S.000Z}</LastModified>"
                        f"<ETag>&quot;{etag}&quot;</ETag></Contents>")
        if store.before_listing is not None:
            store.before_listing()
        self.send(200, "".join([*text, "</ListBucketResult>"]).encode())

    def get(self, key: str):
        store = self.store_of_test
        store.note_asked()
        fault = self.take_fault()
        refusals = {
            "503": "ServiceUnavailable",
            "500": "InternalError",
            "429": "TooMany",
            "403": "AccessDenied",
            "404": "NoSuchKey",
            "501": "NotImplemented"
        }
        if fault in refusals:
            return self.deny(int(fault), refusals[fault])
        if fault in ("slow_down", "slow_down_long"):
            wait = "60" if fault == "slow_down_long" else "1"
            return self.deny(503, "SlowDown", headers=[("retry-after", wait)])
        if fault == "reset":
            return self.reset()
        if fault == "closed":
            self.close_connection = True
            return None
        if fault == "page":
            return self.send(200, b"<html>Please log in</html>")
        content = store.objects.get(key)
        if content is None:
            return self.deny(404, "NoSuchKey")
        etag = f'"{md5_of(content)}"'
        if store.weak_etags:
            etag = "W/" + etag
        wanted = None if store.ignores_if_match else self.headers.get("if-match")
        if wanted is not None and (wanted != etag or store.weak_etags):
            return self.deny(412, "PreconditionFailed")
        headers = [("etag", etag), ("last-modified", formatdate(store.modified, usegmt=True)),
                   ("accept-ranges", "bytes")]
        if "if-none-match" in self.headers:
            self.note("CONDITIONAL", key)
        if self.headers.get("if-none-match") == etag:
            return self.send(304, b"", headers)
        status, part = 200, content
        wish = None if store.ignores_ranges else self.headers.get("range")
        if wish:
            first, last = map(int, wish.removeprefix("bytes=").split("-"))
            if first >= len(content):
                return self.deny(416, "InvalidRange")
            part, status = content[first:last + 1], 206
            with store.lock:
                store.ranges.append((key, first, first + len(part)))
            headers.append(
                ("content-range", f"bytes {first}-{first + len(part) - 1}/{len(content)}"))
        elif store.checksums is not None:
            headers += store.checksums
        elif self.headers.get("x-amz-checksum-mode") == "ENABLED":
            crc = zlib.crc32(content) ^ (fault == "damaged_checksum")
            headers.append(("x-amz-checksum-crc32", base64.b64encode(crc.to_bytes(4,
                                                                                  "big")).decode()))
        self.give(fault, status, part, headers)

    def give(self, fault, status: int, part: bytes, headers):
        with self.store_of_test.lock:
            is_half = fault in ("reset_mid_body", "truncated", "stalled")
            self.store_of_test.given += len(part) // 2 if is_half else len(part)
        if fault == "damaged":
            part = bytes([part[0] ^ 1]) + part[1:]
        if fault in ("reset_mid_body", "truncated", "stalled"):
            self.send(status, part[:len(part) // 2], headers, length=len(part))
            self.wfile.flush()
            if fault == "reset_mid_body":
                return self.reset()
            if fault == "stalled":
                self.store_of_test.ended.wait(60)
            self.close_connection = True
        elif fault == "long":
            self.send(status, part + b"more", headers)
            self.close_connection = True
        elif fault in ("chunked", "wrong_chunk"):
            self.send_response_only(status)
            for name, value in [*headers, ("transfer-encoding", "chunked")]:
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            self.wfile.write(b"zz\r\n" if fault == "wrong_chunk" else b"0\r\n\r\n")
        elif fault == "http_1_0":
            self.wfile.write(f"HTTP/1.0 {status} OK\r\n".encode())
            self.wfile.write("".join(f"{name}: {value}\r\n" for name, value in headers).encode())
            self.wfile.write(b"\r\n" + part)
            self.close_connection = True
        else:
            self.send(status, part,
                      [*headers, *([("connection", "close")] if fault == "close" else [])])
            self.close_connection = self.close_connection or fault == "close"

    # Simulates the services that provide keys.
    def do_PUT(self):
        self.send(200, b"metadata-token")

    def do_POST(self):
        form = dict(parse_qsl(self.rfile.read(int(self.headers["content-length"])).decode()))
        if (form["Action"], form["WebIdentityToken"],
                form["RoleArn"]) != ("AssumeRoleWithWebIdentity", "identity", "arn:role"):
            return self.deny(400, "InvalidIdentityToken")
        self.send(
            200,
            ("<AssumeRoleWithWebIdentityResponse xmlns='https://sts.amazonaws.com/doc/2011-06-15/'>"
             "<AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>KEY</AccessKeyId>"
             f"<SecretAccessKey>{SECRET}</SecretAccessKey><SessionToken>T</SessionToken>"
             "<Expiration>2099-01-01T00:00:00Z</Expiration></Credentials>"
             "</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>").encode())

    def give_keys(self):
        store = self.store_of_test
        self.note("KEYS", self.path)
        is_first = store.requests("KEYS") == 1
        if self.path.endswith("/security-credentials/"):
            return self.send(200, b"role")
        if "imds" in self.path and self.headers.get("x-aws-ec2-metadata-token") != "metadata-token":
            return self.deny(401, "Unauthorized")
        if "container" in self.path and self.headers.get("authorization") != "rotating":
            return self.deny(401, "Unauthorized")
        self.send(
            200,
            json.dumps({
                "AccessKeyId": "KEY",
                "SecretAccessKey": SECRET,
                "Token": "TOKEN" if is_first else "NEWER",
                "Expiration": "2099-01-01T00:00:00Z"
            }).encode())
