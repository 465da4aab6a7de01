"""Runs the steps of the jobs in docs/in-ci.md in FOLDER.  They post to a server here that keeps comments as forges do.

    post_report.py CALM_HOME FOLDER
"""
import http.server
import json
import os
import re
import subprocess
import sys
import threading
import urllib.parse

import yaml

home, folder = sys.argv[1:3]
comments, asked = [], []    # [{"id", "body"}]; [(method, path)]
TOKENS = {"Authorization": "Bearer secret", "PRIVATE-TOKEN": "secret"}


class Forge(http.server.BaseHTTPRequestHandler):
    def answer(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def handle_it(self):
        path, _, query = self.path.partition("?")
        sent = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or "null")
        asked.append((self.command, path))
        if not any(self.headers.get(name) == value for name, value in TOKENS.items()):
            return self.answer(403, {"message": "Resource not accessible by integration"})
        if self.command == "GET":
            page = int(urllib.parse.parse_qs(query)["page"][0])
            return self.answer(200, comments[100 * page - 100:100 * page])
        if self.command == "POST":
            comments.append({"id": 100 + len(comments), "body": sent["body"]})
            return self.answer(201, comments[-1])
        [comment for comment in comments if str(comment["id"]) == path.rsplit("/", 1)[1]][0]["body"] = sent["body"]
        return self.answer(200, {})

    do_GET = do_POST = do_PATCH = do_PUT = handle_it

    def log_message(self, *_):
        pass


def documents():
    """The YAML blocks of the page that are CI jobs: GitHub's and GitLab's."""
    with open(os.path.join(home, "docs", "in-ci.md"), encoding="utf-8") as stream:
        blocks = [yaml.safe_load(text) for text in re.findall(r"^```yaml\n(.*?)^```", stream.read(), re.S | re.M)]
    github = [block for block in blocks if "jobs" in block]
    gitlab = [job for block in blocks for job in block.values() if isinstance(job, dict) and "script" in job]
    assert len(github) == 1 and len(gitlab) == 1, (len(github), len(gitlab))
    return github[0], gitlab[0]


def steps_of(job):
    return [step["run"] for step in job["steps"] if "run" in step] if "steps" in job else job["before_script"] + job["script"] + job["after_script"]


def run(steps, **environment):
    """Run what does not install; gives what was printed."""
    said = ""
    settings = {name: value for name, value in os.environ.items() if not name.startswith(("GITHUB_", "CI_", "GITLAB_"))}
    for step in steps:
        if "apt-get" in step or "git clone" in step:
            continue
        step = step.replace("/opt/calm/calm", os.environ["CALM"]).replace("/opt/calm", home)
        done = subprocess.run(["sh", "-euc", step], cwd=folder, env={**settings, **environment}, capture_output=True, text=True)
        said += done.stdout + done.stderr
        if done.returncode:
            return done.returncode, said
    return 0, said


def expect(holds, *words):
    if not holds:
        print("FAILED:", *words)
        sys.exit(1)


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Forge)
threading.Thread(target=server.serve_forever, daemon=True).start()
address = f"http://127.0.0.1:{server.server_port}"
github, gitlab = documents()

# GitHub: the permissions of the job let it write comments; the step gets the token from its environment.
job = github["jobs"]["report"]
expect(github["permissions"]["pull-requests"] == "write", "the job may not comment")
expect([step for step in job["steps"] if "post-report" in step.get("run", "")][0]["env"]["GITHUB_TOKEN"] == "${{ github.token }}", "no token")
hub = dict(GITHUB_ACTIONS="true", GITHUB_JOB="report", GITHUB_REF="refs/pull/7/merge", GITHUB_REPOSITORY="me/models", GITHUB_API_URL=address,
           GITHUB_TOKEN="secret", GITHUB_STEP_SUMMARY=os.path.join(folder, "summary.md"))
comments.append({"id": 5, "body": "What a person wrote"})
status, said = run(steps_of(job), **hub)
expect(status == 0, "the job fails:", said)
expect(len(comments) == 2 and comments[1]["body"].startswith("<!-- calm report of report -->\n### calm run 1: qwen, finished"), "the comment is", comments)
expect("| perplexity |" in comments[1]["body"], "no perplexity in", comments[1]["body"])
with open(hub["GITHUB_STEP_SUMMARY"], encoding="utf-8") as stream:
    expect(stream.read() == comments[1]["body"].split("\n", 1)[1], "the summary is not the comment")
expect(asked == [("GET", "/repos/me/models/issues/7/comments"), ("POST", "/repos/me/models/issues/7/comments")], "it asked", asked)

# The next push updates the same comment, even when a hundred others stand before it; a push without a pull request
# writes none; when the server refuses, the job shows the server's reason.
post = [step for step in steps_of(job) if "post-report" in step]
comments[0:0] = [{"id": 1000 + i, "body": "More of what people wrote"} for i in range(120)]
status, said = run(post, **hub)
expect([name for name, _ in asked[2:]] == ["GET", "GET", "PATCH"], "pages:", asked[2:])
del comments[:120]
expect(status == 0 and len(comments) == 2 and asked[-1] == ("PATCH", "/repos/me/models/issues/comments/101"), "the second time:", said, asked[-1])
for changed, words, wanted in (({"GITHUB_REF": "refs/heads/main"}, "no comment: this is no pull or merge request", 0),
                               ({"GITHUB_TOKEN": ""}, "no comment: GITHUB_TOKEN is not set", 0),
                               ({"GITHUB_TOKEN": "other"}, "403: {\"message\": \"Resource not accessible by integration\"}", 1)):
    status, said = run(post, **{**hub, **changed})
    expect(status == wanted and words in said and len(comments) == 2, changed, "gives", status, said)
status, said = run([post[0].replace("post-report ", "post-report 9 ")], **hub)
expect(status == 1 and "no run 9" in said, "a run that is not there:", status, said)

# GitLab.
del comments[1:], asked[:]
lab = dict(CI_JOB_NAME="quantize", CI_MERGE_REQUEST_IID="3", CI_PROJECT_ID="44", CI_API_V4_URL=address + "/api/v4", GITLAB_TOKEN="secret")
for _ in range(2):
    status, said = run(steps_of(gitlab), **lab)
    expect(status == 0, "GitLab's job fails:", said)
notes = "/api/v4/projects/44/merge_requests/3/notes"
expect(asked == [("GET", notes), ("POST", notes), ("GET", notes), ("PUT", notes + "/101")], "GitLab was asked", asked)
# The store of GitHub's job, with two more runs: the newest is posted.
expect(len(comments) == 2 and "calm run 3: qwen" in comments[1]["body"], "the note is", comments)
for name in gitlab["artifacts"]["paths"]:
    expect(os.path.exists(os.path.join(folder, name)), "no", name)
print("post_report: ok")
