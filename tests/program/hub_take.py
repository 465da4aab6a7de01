#!/usr/bin/env python3
"""hub_take.py: runs a command while a small hub accepts models by the published protocol, and keeps them.

  hub_take.py [--token T] [--read-only] [--gated] [--has NAME] [--chunk N] [--drop N] [--no-card] STORE -- COMMAND...

The command has HF_ENDPOINT in its environment; its exit status becomes that of hub_take.py.  The files of a commit are
below STORE/ORG/NAME, blobs of large files in STORE/blobs, where a later call finds them; STORE/requests has one line per
request: host, method, whether it had a token, path.  --has: a repository of that name exists and has a file.  --chunk:
large files come in parts of N bytes.  --drop: N PUTs are cut off.  --no-card: there is no api/validate-yaml, as on
mirrors.  The licences that it accepts in a card are apache-2.0, mit and other.  It answers as huggingface_hub 2.4 and
git-lfs expect."""
import argparse
import base64
import hashlib
import http.server
import json
import os
import re
import subprocess
import sys
import threading

LARGE = (".safetensors", ".gguf", ".bin", "tokenizer.json")


class State:
    def __init__(self, options):
        self.options = options
        self.drops = options.drop
        self.lock = threading.Lock()
        os.makedirs(os.path.join(options.store, "blobs"), exist_ok=True)

    def repo(self, name):
        return os.path.join(self.options.store, name)

    def blob(self, oid):
        return os.path.join(self.options.store, "blobs", oid)

    def files(self, name):
        found = []
        for folder, _, names in os.walk(self.repo(name)):
            found += [os.path.relpath(os.path.join(folder, n), self.repo(name)) for n in names]
        return sorted(found)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    storage = False

    def log_message(self, *_):
        pass

    def note(self):
        with self.server.state.lock, open(os.path.join(self.server.state.options.store, "requests"), "a") as f:
            f.write(f"{'storage' if self.storage else 'hub'} {self.command} "
                    f"{'token' if 'Authorization' in self.headers else '-'} {self.path.split('?')[0]}\n")

    def body(self):
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def say(self, code, value=None, headers=()):
        data = b"" if value is None else value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(code)
        for name, text in headers:
            self.send_header(name, text)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


class Storage(Handler):
    storage = True

    def do_PUT(self):
        self.note()
        state = self.server.state
        with state.lock:
            cut = state.drops > 0
            state.drops -= cut
        if cut:
            self.rfile.read(10)
            self.connection.close()
            self.close_connection = True
            return
        data = self.body()
        oid, _, part = self.path.strip("/").partition("/")
        if "Authorization" in self.headers:
            return self.say(400, {"error": "a token came to the storage host"})
        if not part and hashlib.sha256(data).hexdigest() != oid:
            return self.say(400, {"error": "other bytes"})
        with open(state.blob(oid) + ("." + part if part else ""), "wb") as f:
            f.write(data)
        self.say(200, None, [("ETag", f'"{hashlib.md5(data).hexdigest()}"')])


class Hub(Handler):
    def allowed(self):
        o = self.server.state.options
        if o.token and self.headers.get("Authorization") != "Bearer " + o.token:
            self.say(401, {"error": "Invalid username or password."},
                     [("X-Error-Message", "Invalid username or password.")])
            return False
        if o.gated:
            self.say(403, {"error": "Access to model is restricted"}, [("X-Error-Code", "GatedRepo")])
            return False
        if o.read_only and self.command == "POST" and "validate-yaml" not in self.path:
            self.say(403, {"error": "You don't have the rights to create a model under this namespace"})
            return False
        return True

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        self.note()
        state = self.server.state
        listing = re.fullmatch(r"/api/models/([^/]+/[^/]+)(/revision/main|/tree/[^/]+)?", self.path.split("?")[0])
        get = re.fullmatch(r"/([^/]+/[^/]+)/resolve/[^/]+/(.+)", self.path.split("?")[0])
        if listing and os.path.isdir(state.repo(listing[1])):
            files = state.files(listing[1])
            if listing[2] and listing[2].startswith("/tree"):
                return self.say(200, [{"type": "file", "path": n, "size": os.path.getsize(
                    os.path.join(state.repo(listing[1]), n)), "oid": "0" * 40} for n in files])
            return self.say(200, {"id": listing[1], "modelId": listing[1], "sha": "0123456789abcdef0123456789abcdef01234567",
                                  "private": os.path.exists(state.repo(listing[1]) + ".private"),
                                  "siblings": [{"rfilename": n} for n in files]})
        if get and os.path.isfile(os.path.join(state.repo(get[1]), get[2])):
            data = open(os.path.join(state.repo(get[1]), get[2]), "rb").read()
            return self.say(200, data, [("ETag", f'"{hashlib.sha256(data).hexdigest()}"'),
                                        ("X-Repo-Commit", "0123456789abcdef0123456789abcdef01234567")])
        self.say(404, {"error": "Repository not found"}, [("X-Error-Code", "RepoNotFound")])

    def do_POST(self):
        self.note()
        data = self.body()
        if not self.allowed():
            return None
        path = self.path.split("?")[0]
        for pattern, answer in ((r"/api/validate-yaml", self.card), (r"/api/repos/create", self.create),
                                (r"/api/models/([^/]+/[^/]+)/preupload/main", self.preupload),
                                (r"/([^/]+/[^/]+)\.git/info/lfs/objects/batch", self.batch),
                                (r"/complete/([0-9a-f]{64})", self.complete), (r"/verify", self.verify),
                                (r"/api/models/([^/]+/[^/]+)/commit/main", self.commit)):
            match = re.fullmatch(pattern, path)
            if match:
                return answer(data, *match.groups())
        return self.say(404, {"error": "no such route"})

    def card(self, data):
        content = json.loads(data)["content"]
        licence = re.search(r"^license: *(\S+)", content, re.M)
        if self.server.state.options.no_card:
            return self.say(404, {"error": "no such route"})
        if licence and licence[1] not in ("apache-2.0", "mit", "other"):
            return self.say(400, {"errors": [{"message": '"license" must be one of [apache-2.0, mit, other]'}],
                                  "warnings": []})
        return self.say(200, {"errors": [], "warnings": []})

    def create(self, data):
        asked, state = json.loads(data), self.server.state
        folder = state.repo(asked["organization"] + "/" + asked["name"])
        if os.path.isdir(folder):
            return self.say(409, {"error": "You already created this model repo"})
        os.makedirs(folder)
        open(os.path.join(folder, ".gitattributes"), "w").close()
        if asked.get("private"):
            open(folder + ".private", "w").close()
        return self.say(200, {"url": "/" + asked["organization"] + "/" + asked["name"]})

    def preupload(self, data, repo):
        files = json.loads(data)["files"]
        for f in files:    # the sample is the file's beginning
            assert len(base64.b64decode(f["sample"], validate=True)) == min(512, f["size"])
        return self.say(200, {"files": [{"path": f["path"], "shouldIgnore": f["path"].endswith(".ignored"),
                                         "uploadMode": "lfs" if f["path"].endswith(LARGE) else "regular"}
                                        for f in files]})

    def batch(self, data, repo):
        asked, state, objects = json.loads(data), self.server.state, []
        assert self.headers["Content-Type"] == self.headers["Accept"] == "application/vnd.git-lfs+json"
        assert asked["operation"] == "upload" and asked["hash_algo"] == "sha256"
        for o in asked["objects"]:
            entry = {"oid": o["oid"], "size": o["size"]}
            chunk = state.options.chunk
            if not os.path.exists(state.blob(o["oid"])):
                upload = {"href": f"{state.storage}/{o['oid']}"}
                if chunk and o["size"] > chunk:
                    upload = {"href": f"{state.endpoint}/complete/{o['oid']}",
                              "header": {"chunk_size": str(chunk), **{str(i + 1): f"{state.storage}/{o['oid']}/{i + 1}"
                                                                      for i in range(-(-o["size"] // chunk))}}}
                entry["actions"] = {"upload": upload, "verify": {"href": state.endpoint + "/verify"}}
            objects.append(entry)
        return self.say(200, {"transfer": "multipart" if state.options.chunk else "basic", "objects": objects})

    def complete(self, data, oid):
        state, whole = self.server.state, b""
        for part in json.loads(data)["parts"]:
            with open(f"{state.blob(oid)}.{part['partNumber']}", "rb") as f:
                piece = f.read()
            if part["etag"] != f'"{hashlib.md5(piece).hexdigest()}"':
                return self.say(400, {"error": "wrong etag"})
            whole += piece
            os.remove(f"{state.blob(oid)}.{part['partNumber']}")
        if hashlib.sha256(whole).hexdigest() != oid:
            return self.say(400, {"error": "other bytes"})
        with open(state.blob(oid), "wb") as f:
            f.write(whole)
        return self.say(200, {})

    def verify(self, data):
        asked = json.loads(data)
        path = self.server.state.blob(asked["oid"])
        good = os.path.exists(path) and os.path.getsize(path) == asked["size"]
        return self.say(200 if good else 404, {} if good else {"error": "not there"})

    def commit(self, data, repo):
        state = self.server.state
        lines = [json.loads(line) for line in data.decode().splitlines()]
        assert lines[0]["key"] == "header" and lines[0]["value"]["summary"]
        for line in lines[1:]:
            value = line["value"]
            path = os.path.join(state.repo(repo), value["path"])
            os.makedirs(os.path.dirname(path), exist_ok=True)
            if line["key"] == "file":
                content = base64.b64decode(value["content"], validate=True)
            else:
                with open(state.blob(value["oid"]), "rb") as f:
                    content = f.read()
                assert len(content) == value["size"] and value["algo"] == "sha256"
            with open(path, "wb") as f:
                f.write(content)
        return self.say(200, {"success": True, "commitOid": "89abcdef0123456789abcdef0123456789abcdef",
                              "commitUrl": f"{state.endpoint}/{repo}/commit/89abcdef"})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--token")
    for flag in ("--read-only", "--gated", "--no-card"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--has")
    parser.add_argument("--chunk", type=int, default=0)
    parser.add_argument("--drop", type=int, default=0)
    parser.add_argument("store")
    at = sys.argv.index("--")
    options = parser.parse_args(sys.argv[1:at])
    state = State(options)
    if options.has:
        os.makedirs(state.repo(options.has), exist_ok=True)
        with open(os.path.join(state.repo(options.has), "theirs.txt"), "w") as f:
            f.write("theirs\n")
    servers = [http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind) for kind in (Hub, Storage)]
    state.endpoint, state.storage = (f"http://127.0.0.1:{s.server_address[1]}" for s in servers)
    for server in servers:
        server.state = state
        threading.Thread(target=server.serve_forever, daemon=True).start()
    return subprocess.run(sys.argv[at + 1:], env={**os.environ, "HF_ENDPOINT": state.endpoint}).returncode


sys.exit(main())
