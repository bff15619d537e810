"""cubeshim ls, cat, doctor and bench with s3:// names. The store checks every signature with
botocore's own implementation, and has faults on request."""
import json
import os
import re
import signal
import subprocess
import time
import unittest

from bucket_store import SECRET, Store
from cli_case import Case

KEYS = [
    "plain", "with space", "plus+and=equals", "(star*)@&%25", "ümläut/ß", "a/b", "a/c/d", "~._-",
    "q?x#y", "quote\"'<&>", "control\x01", "end/", "k" * 1024
]


class BucketCase(Case):

    def setUp(self):
        super().setUp()
        self.store = Store()
        self.addCleanup(self.store.close)

    def known_environment(self, keys=True, timeout=3):
        known = {
            "AWS_ENDPOINT_URL": self.store.url,
            "AWS_REGION": "eu-central-1",
            "HOME": str(self.data),
            "AWS_EC2_METADATA_DISABLED": "true",
            "CUBESHIM_S3_TIMEOUT": str(timeout)
        }
        if keys:
            known |= {"AWS_ACCESS_KEY_ID": "KEY", "AWS_SECRET_ACCESS_KEY": SECRET}
        return known

    def bucket(self, *words, env=None, keys=True, timeout=3):
        known = self.known_environment(keys, timeout)
        return self.command(*words, env={k: str(v) for k, v in (known | (env or {})).items()})

    def cat(self, key="plain", **options):
        return self.bucket("cat", f"s3://bucket/{key}", **options)

    def assert_fails(self, done, *words):
        self.assertEqual(done.returncode, 1, done)
        self.assertEqual(done.stdout, b"")
        lines = done.stderr.decode().splitlines()
        self.assertEqual(len(lines), 1, lines)
        for word in words:
            self.assertIn(word, lines[0])


class LooksAtBuckets(BucketCase):

    def test_keys_of_all_kinds_are_listed_and_read(self):
        for number, key in enumerate(KEYS):
            self.store.objects[key] = f"content {number}".encode()
        listed = self.bucket("ls", "-R", "s3://bucket")
        self.assertEqual(listed.returncode, 0, listed.stderr)
        self.assertEqual(sorted(listed.stdout.decode().split("\n")[:-1]), sorted(KEYS))
        uris = [f"s3://bucket/{key}" for key in KEYS]
        printed = self.bucket("cat", *uris)
        self.assertEqual(printed.returncode, 0, printed.stderr)
        self.assertEqual(printed.stdout.decode(),
                         "".join(f"content {number}" for number in range(len(KEYS))))
        self.assertEqual(self.store.refused, [])

    def test_ls_fetches_all_pages_of_a_listing(self):
        self.store.page = 7
        self.store.objects |= {f"d/{i:03}": b"x" for i in range(50)} | {"d/sub/x": b"", "d/": b""}
        listed = self.bucket("ls", "s3://bucket/d")
        self.assertEqual(sorted(listed.stdout.decode().split()),
                         [f"{i:03}" for i in range(50)] + ["sub/"])
        self.assertEqual(self.bucket("ls", "s3://bucket/d/003").stdout, b"d/003\n")
        self.assert_fails(self.bucket("ls", "s3://bucket/absent"), "no object")

    def test_an_endless_listing_is_refused(self):
        self.store.objects["plain"] = b"x"
        self.store.endless = True
        self.assert_fails_soon(self.bucket("ls", "s3://bucket"))

    def assert_fails_soon(self, done):
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"listing is damaged", done.stderr)

    def test_xml_with_cdata_namespaces_and_references_is_read(self):
        self.store.listing = ("<?xml version='1.0'?><!-- > --><s:ListBucketResult xmlns:s='x>y'>"
                              "<s:IsTruncated>false</s:IsTruncated><s:Contents><s:Key>"
                              "<![CDATA[a<b]]>&amp;&#x2f;&#252;</s:Key><s:Size>1</s:Size>"
                              "<s:Unknown/></s:Contents></s:ListBucketResult>")
        self.assertEqual(self.bucket("ls", "-R", "s3://bucket").stdout.decode(), "a<b&/ü\n")

    def test_hostile_xml_is_refused(self):
        bomb = ("<!DOCTYPE l [<!ENTITY a 'aaaaaaaaaa'><!ENTITY b '&a;&a;&a;'>]><ListBucketResult>"
                "<Contents><Key>&b;</Key><Size>1</Size></Contents></ListBucketResult>")
        for text in (bomb, "<ListBucketResult>" + "<a>" * 100_000, "<ListBucketResult>",
                     "<ListBucketResult>&unknown;</ListBucketResult>", "", "<Other/>",
                     "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>"):
            self.store.listing = text
            self.assert_fails_soon(self.bucket("ls", "s3://bucket"))

    def test_a_large_object_comes_in_ranges_of_one_version(self):
        content = os.urandom(20 << 20)
        self.store.objects["plain"] = content
        self.assertEqual(self.cat(timeout=30).stdout, content)
        self.assertEqual(self.store.requests("GET"), 3)
        for self.store.ignores_if_match in (False, True):
            self.store.objects["plain"] = content
            self.store.ranges.clear()
            self.store.after(2, lambda: self.store.objects.update(plain=content[::-1]))
            done = self.cat(timeout=30)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertLessEqual(len(done.stdout), 8 << 20)
            self.assertEqual(self.store.ranges != [], self.store.ignores_if_match)

    def test_an_empty_object_has_no_bytes(self):
        self.store.objects["plain"] = b""
        done = self.cat()
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"", b""))

    def test_bench_measures_three_numbers_in_flight(self):
        self.store.objects |= {f"b/{i}": os.urandom(1000) for i in range(30)}
        done = self.bucket("bench", "s3://bucket/b/", "--json")
        rows = json.loads(done.stdout)
        self.assertEqual([(row["in_flight"], row["objects"], row["failed"]) for row in rows],
                         [(1, 10, 0), (8, 10, 0), (64, 10, 0)])
        self.assertEqual(self.store.requests("GET"), 30)


class PacksBuckets(BucketCase):

    def setUp(self):
        super().setUp()
        self.file = self.data / "out.cube"

    def pack(self, *words, uri="s3://bucket/train/"):
        return self.bucket("pack", "--json", "--verify", *words, uri, self.file, timeout=30)

    def packed(self):
        """The contents of the pack's files."""
        out = self.data / "out"
        done = self.command("extract", self.file, out)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        return {str(p.relative_to(out)): p.read_bytes() for p in out.rglob("*") if p.is_file()}

    def test_objects_are_fetched_once_and_become_files(self):
        wanted = {
            "with space": b"1", "a-b": b"2", "a/c": b"3", "a/ümläut": b"4" * 70_000, "z/y/x": b"",
            "plus+%25": os.urandom(17 << 20)
        }
        self.store.objects = {f"train/{name}": content for name, content in wanted.items()}
        self.store.objects["train/"] = self.store.objects["train/empty/"] = b""
        self.store.objects["trainer"] = b"no"
        self.store.page = 3
        done = self.pack()
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.assertEqual(self.packed(), wanted)
        self.assertTrue((self.data / "out/empty").is_dir())
        gets = [key for kind, key in self.store.log if kind == "GET"]
        # The large object is fetched in three ranges.
        self.assertEqual(sorted(set(gets)), sorted(f"train/{name}" for name in wanted))
        self.assertEqual(len(gets), len(wanted) + 2)
        self.assertEqual((self.store.requests("LIST"), self.store.requests("HEAD")), (3, 0))

    def test_keys_without_a_path_and_changed_objects_are_reported(self):
        self.store.objects = {
            f"train/{name}": b"12345" for name in ("good", "a", "a/b", "c//d", "e/../f", "changed")
        }
        self.store.after(1, lambda: self.store.objects.update({"train/changed": b"54321"}))
        done = self.pack()
        self.assertEqual((done.returncode, done.stderr), (1, b""))
        reasons = {row["reason"]: row["files"] for row in json.loads(done.stdout)["reasons"]}
        self.assertEqual(reasons, {
            "objects whose keys are not paths": 3,
            "changed while they were read": 1
        })
        self.assertEqual(self.packed(), {"good": b"12345", "a/b": b"12345"})

    def test_interrupted_run_is_resumed(self):
        wanted = {f"{i // 90}/{i % 3}/{i:04}": b"%d" % i for i in range(600)}
        self.store.objects = {f"train/{name}": content for name, content in wanted.items()}
        self.store.is_public = True
        known = self.known_environment(keys=False, timeout=30) | {"CUBESHIM_S3_ANONYMOUS": "1"}
        child = self.start("pack", "s3://bucket/train", self.file, env=known,
                           stderr=subprocess.PIPE)
        self.store.after(100, lambda: child.send_signal(signal.SIGINT))
        self.assertIn(b"interrupted", child.communicate(timeout=300)[1])
        done = self.command("pack", "--json", "s3://bucket/train", self.file, env=known)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)["resumed"], 512)
        self.assertEqual(self.store.requests("GET"), len(wanted))
        self.assertEqual(self.packed(), wanted)

    def test_a_prefix_without_objects_is_refused(self):
        self.assert_fails(self.pack(), "s3://bucket/train: no object lies below it")


class Faults(BucketCase):

    def setUp(self):
        super().setUp()
        self.content = os.urandom(100_000)
        self.store.objects["plain"] = self.content

    def assert_read(self, done):
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.assertEqual(done.stdout, self.content)

    def test_transient_faults_are_retried(self):
        for fault in ("503", "500", "429", "reset", "reset_mid_body", "truncated", "slow_down",
                      "closed", "long", "damaged", "wrong_chunk"):
            with self.subTest(fault=fault):
                self.store.fault = [fault]
                self.assert_read(self.cat(timeout=30))
                self.assertEqual(self.store.fault, [])

    def test_bytes_are_compared_with_the_checksum_that_the_store_sends(self):
        self.store.fault = [None, "damaged_checksum"]
        row = json.loads(self.bucket("bench", "s3://bucket/", "--json").stdout)[0]
        self.assertEqual((row["objects"], row["retries"], row["failed"]), (1, 1, 0))

    def test_bytes_are_compared_with_the_checksums_of_other_stores(self):
        self.store.objects["plain"] = self.content = b"123456789"
        crc64, unpacked = str(0x995dc9bbdf1939fa), ("x-goog-stored-content-encoding", "gzip")
        for good, bad in (
            ([("x-oss-hash-crc64ecma", crc64)], [("x-oss-hash-crc64ecma", "1")]),
            ([("x-cos-hash-crc64ecma", crc64)], [("x-cos-hash-crc64ecma", "1")]),
            ([("x-goog-hash", "crc32c=4waSgw==,md5=eA==")], [("x-goog-hash", "crc32c=AAAAAA==")]),
            ([("x-goog-hash", "crc32c=AAAAAA=="), unpacked], None),
            # An object that was uploaded in parts has a checksum of its parts, not of its bytes.
            ([("x-amz-checksum-crc32", "AAAAAA==-4")], None),
        ):
            with self.subTest(headers=good):
                self.store.checksums = good
                self.assert_read(self.cat())
            if bad:
                self.store.checksums = bad
                self.assert_fails(self.cat(timeout=1), "bytes")

    def test_odd_but_good_answers_are_read(self):
        for fault in ("chunked", "http_1_0", "close"):
            with self.subTest(fault=fault):
                self.store.fault = [fault]
                self.assert_read(self.cat())

    def test_retry_without_a_length_has_no_bytes_of_the_failed_attempt(self):
        for fault in ("chunked", "http_1_0"):
            with self.subTest(fault=fault):
                self.store.fault = ["truncated", fault]
                self.assert_read(self.cat(timeout=30))
        self.content = b""
        for fault in ("truncated", "page"):
            with self.subTest(fault=fault):
                self.store.fault = [fault]
                self.store.after(2, lambda: self.store.objects.update(plain=b""))
                self.assert_read(self.cat(timeout=30))

    def test_lasting_faults_end_with_one_line(self):
        for fault, words in (("503", ["503"]), ("truncated", []), ("damaged", ["bytes"]),
                             ("stalled", [])):
            with self.subTest(fault=fault):
                self.store.fault = [fault] * 1000
                self.assert_fails(self.cat(timeout=1), "s3://bucket/plain", *words)
                self.store.fault = []

    def test_a_refusal_is_not_retried(self):
        for fault, word in (("403", "AccessDenied"), ("404", "NoSuchKey"), ("501", "501")):
            with self.subTest(fault=fault):
                self.store.log.clear()
                self.store.fault = [fault] * 9
                self.assert_fails(self.cat(timeout=30), word)
                self.assertEqual(self.store.requests("GET"), 1)
                self.store.fault = []

    def test_a_wrong_key_is_refused_and_not_printed(self):
        done = self.cat(env={"AWS_SECRET_ACCESS_KEY": "wrong-secret"})
        self.assert_fails(done, "SignatureDoesNotMatch")
        self.assertNotIn(b"wrong-secret", done.stderr)

    def test_another_region_is_followed_once(self):
        self.store.region = "us-west-2"
        self.assert_read(self.cat())
        self.assertEqual(self.store.requests("GET"), 2)

    def test_a_wait_beyond_the_time_limit_is_not_obeyed(self):
        self.store.fault = ["slow_down_long"]
        self.assert_read(self.cat(timeout=30))

    def test_time_until_it_gives_up_is_measured(self):
        self.store.fault = ["slow_down_long"] * 1000
        began = time.monotonic()
        done = self.bucket("cat", *["s3://bucket/plain"] * 4, timeout=1)
        passed = time.monotonic() - began
        told = re.findall(r"503 SlowDown.*; given up after \d+ attempts in (\d+\.\d) s\n",
                          done.stderr.decode())
        self.assertEqual(len(told), 4, done)
        self.assertLessEqual(sum(map(float, told)), passed + 4 * 0.05)  # because they are rounded
        self.store.fault = ["stalled"]
        self.assertRegex(self.cat(timeout=1).stderr.decode(),
                         r"given up after 1 attempt in \d+\.\d s$")

    def test_a_wrong_clock_is_corrected(self):
        self.store.clock_ahead = 3600
        self.assert_read(self.cat())

    def test_a_name_that_does_not_resolve_ends_in_time(self):
        self.assert_fails(self.cat(env={"AWS_ENDPOINT_URL": "http://no.invalid:1"}, timeout=1),
                          "s3://bucket/plain")

    def test_a_host_without_a_server_ends_in_time(self):
        self.assert_fails(self.cat(env={"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, timeout=1),
                          "s3://bucket/plain")


class FindsCredentials(BucketCase):

    def setUp(self):
        super().setUp()
        self.store.objects["plain"] = b"x"

    def assert_source(self, source, env):
        done = self.bucket("doctor", "s3://bucket", keys=False, env=env)
        self.assertEqual(done.returncode, 0, done)
        self.assertIn(f"credentials: from {source}", done.stdout.decode())
        self.assertNotIn(SECRET, done.stdout.decode())

    def test_doctor_names_endpoint_region_rights_and_source(self):
        done = self.bucket("doctor", "s3://bucket")
        text = done.stdout.decode()
        self.assertEqual(done.returncode, 0, text)
        for words in ("AWS_ENDPOINT_URL", "region: eu-central-1", "from the environment", "list: ",
                      "get: the first byte", "no TLS", "clock: "):
            self.assertIn(words, text)
        self.store.fault = ["403"]
        done = self.bucket("doctor", "s3://bucket")
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"s3:ListBucket", done.stdout)
        self.store.region = "us-west-2"
        self.assertIn(b"region: the bucket is in us-west-2;",
                      self.bucket("doctor", "s3://bucket").stdout)

    def test_a_profile_has_keys_or_a_process(self):
        (self.data / ".aws").mkdir()
        (self.data / ".aws/credentials"
        ).write_text(f"[default]\naws_access_key_id = KEY # mine\naws_secret_access_key={SECRET}\n")
        self.assert_source("the profile default", {})
        script = self.data / "keys.sh"
        script.write_text("#!/bin/sh\necho '" + json.dumps({
            "Version": 1,
            "AccessKeyId": "KEY",
            "SecretAccessKey": SECRET,
            "SessionToken": "TOKEN",
            "Expiration": "2099-01-01T00:00:00Z"
        }) + "'\n")
        script.chmod(0o755)
        (self.data / ".aws/config").write_text(
            f"[profile p]\ncredential_process = {script}\ns3 =\n  addressing_style = path\n")
        self.assert_source("the profile's credential_process", {"AWS_PROFILE": "p"})

    def test_a_container_has_an_endpoint_and_a_token_file(self):
        (self.data / "token").write_text("rotating\n")
        self.assert_source(
            "the container's endpoint", {
                "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{self.store.url}/-/container",
                "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": self.data / "token"
            })

    def test_an_instance_has_a_role(self):
        self.assert_source(
            "the instance's role", {
                "AWS_EC2_METADATA_SERVICE_ENDPOINT": f"{self.store.url}/-/imds",
                "AWS_EC2_METADATA_DISABLED": "false"
            })

    def test_a_web_identity_is_changed_for_keys(self):
        (self.data / "token").write_text("identity")
        self.assert_source(
            "the web identity token", {
                "AWS_WEB_IDENTITY_TOKEN_FILE": self.data / "token",
                "AWS_ROLE_ARN": "arn:role",
                "AWS_ENDPOINT_URL_STS": f"{self.store.url}/-/sts"
            })

    def test_an_expired_token_is_renewed(self):
        (self.data / "token").write_text("rotating\n")
        self.store.expire_first_token = True
        done = self.cat(keys=False,
                        env={
                            "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{self.store.url}/-/container",
                            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": self.data / "token"
                        })
        self.assertEqual(done.stdout, b"x", done.stderr)

    def test_missing_credentials_are_reported_with_the_places_searched(self):
        self.assert_fails(self.cat(keys=False), "no credentials")

    def test_an_anonymous_request_is_not_signed(self):
        self.store.is_public = True
        self.assertEqual(self.cat(keys=False, env={"CUBESHIM_S3_ANONYMOUS": "1"}).stdout, b"x")
        self.assertNotIn("authorization", self.store.last_headers)


if __name__ == "__main__":
    unittest.main()
