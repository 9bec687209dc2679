#!/usr/bin/env python3
"""What lies in the folder of a store, or is planted there, and clients that fill it: nothing of anybody's goes."""

import json
import os
import pathlib
import sqlite3
import stat
import subprocess
import tempfile
import time
import unittest

from serving import CIRCLE, PROGRAM, Keyed, Server, main

LONG = {"classes": ["red star"], "steps": 1000, "count": 8}


def tree(folder):
    """{path: what it is}"""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else path.is_symlink() for path in sorted(folder.rglob("*"))}


class Planted(unittest.TestCase):
    """Starts that must be refused and change nothing."""

    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name).resolve()
        self.store = self.folder / "store"

    def write(self, path, text="precious"):
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_text(text)

    def serve(self, *arguments, store="store", cwd=None, models=("tasks-a",)):
        words = [PROGRAM, "serve", *models, "--port", "0", *arguments, *(("--store", store) if store else ())]
        return subprocess.run(words, capture_output=True, text=True, timeout=60, cwd=cwd or self.folder, env={**os.environ, "TMPDIR": str(self.folder)})

    def refused(self, says, store="store", status=2, **options):
        before = tree(self.folder)
        done = self.serve(store=store, **options)
        self.assertEqual((done.returncode, done.stderr.count("tessera: error: ")), (status, 1), done.stderr)
        self.assertIn(says, done.stderr)
        self.assertEqual(tree(self.folder), before)

    def made(self):
        """A store with a job that is done."""
        server = Server()
        self.addCleanup(server.close)
        job = server.wait(server.submit())["id"]
        server.end()
        (server.folder / "store").rename(self.store)
        return job

    def change(self, how, *values):
        with sqlite3.connect(self.store / "jobs.sqlite") as database:
            database.execute(how, values)
        database.close()

    def started(self):
        server = Server(store=False)
        server.end()
        server.arguments += ["--store", str(self.store)]
        self.addCleanup(server.close)
        server.start()
        return server

    def test_a_folder_with_results_of_a_paper(self):
        self.write("store/results/paper/table.csv")
        self.write("store/results/notes.txt")
        self.refused("no jobs.sqlite")

    def test_the_folder_of_a_project(self):
        self.write("docs/results/server.md")
        self.write("docs/index.md")
        self.refused("no jobs.sqlite", store="docs")
        self.refused("no jobs.sqlite", store=".", cwd=self.folder / "docs")

    def test_a_folder_with_one_hidden_file(self):
        self.write("store/.keep")
        self.refused("no jobs.sqlite")

    def test_results_that_lead_elsewhere(self):
        self.write("victim/data.txt")
        self.store.mkdir()
        (self.store / "results").symlink_to(self.folder / "victim")
        self.refused("no jobs.sqlite")

    def test_results_of_a_store_that_lead_elsewhere(self):
        self.made()
        self.write("victim/data.txt")
        self.write("victim/0123456789abcdef01234567/0.png")
        (self.store / "results").rename(self.folder / "aside")
        (self.store / "results").symlink_to(self.folder / "victim")
        self.refused("symbolic link")

    def test_a_store_that_is_a_link(self):
        (self.folder / "real").mkdir()
        self.store.symlink_to(self.folder / "real")
        for name in ("store", "store/", "store/.", "./store//"):
            self.refused("symbolic link", store=name)

    def test_a_lock_that_is_a_link(self):
        self.write("victim", "")
        self.store.mkdir()
        (self.store / "lock").symlink_to(self.folder / "victim")
        self.refused("'lock' in it is a symbolic link")

    def test_a_lock_that_is_a_pipe(self):
        self.store.mkdir()
        os.mkfifo(self.store / "lock")
        self.refused("'lock' in it is a symbolic link, or no file")

    def test_a_database_that_is_a_link(self):
        self.made()
        (self.store / "jobs.sqlite").rename(self.folder / "elsewhere.sqlite")
        (self.store / "jobs.sqlite").symlink_to(self.folder / "elsewhere.sqlite")
        self.refused("'jobs.sqlite' in it is a symbolic link")

    def test_a_database_of_another_program(self):
        self.store.mkdir()
        self.change("CREATE TABLE mine (x)")
        self.refused("of another program")

    def test_a_folder_that_others_write(self):
        for mode in (0o777, 0o1777, 0o775):
            self.store.mkdir()
            self.store.chmod(mode)
            self.refused("others may write")
            self.store.rmdir()

    @unittest.skipIf(os.geteuid() != 0, "only root gives folders away")
    def test_a_folder_of_another_user(self):
        self.store.mkdir()
        os.chown(self.store, 65534, 65534)
        self.refused("another user")

    def test_an_id_that_is_a_path(self):
        self.made()
        self.write("victim3/0.png")
        for name in ("../../victim3", "..", "/etc", "", "x" * 24):
            self.change("UPDATE jobs SET id = ?, ended = 1", name)
            done = self.serve()
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertIn("a job holds what no server wrote", done.stderr)
        self.assertTrue((self.folder / "victim3/0.png").exists())

    def test_files_that_are_paths(self):
        job = self.made()
        server = self.started()
        self.assertEqual(server.get(f"/jobs/{job}/results/0").status, 200)
        for name in ("../../../../../etc/hostname", "/etc/hostname", "0.png/../../../lock", "jobs.sqlite", ".", ""):
            self.change("UPDATE jobs SET results = ?", json.dumps([{"file": name, "type": "image/png"}]))
            answer = server.get(f"/jobs/{job}/results/0")
            self.assertEqual(answer.status, 500, name)
            self.assertNotIn(str(self.folder), answer.message)

    def test_a_result_that_leads_elsewhere(self):
        job = self.made()
        server = self.started()
        self.write("secret.png")
        results = self.store / "results" / job
        (results / "0.png").unlink()
        (results / "0.png").symlink_to(self.folder / "secret.png")
        self.assertEqual(server.get(f"/jobs/{job}/results/0").status, 404)
        (results / "0.png").unlink()
        results.rmdir()
        self.write("secret/0.png")
        results.symlink_to(self.folder / "secret")
        self.assertEqual(server.get(f"/jobs/{job}/results/0").status, 404)
        server.ask("DELETE", f"/jobs/{job}")
        self.assertTrue((self.folder / "secret/0.png").exists())

    def test_files_beside_results_stay(self):
        job = self.made()
        self.write(f"store/results/{job}/notes.txt")
        self.write("store/results/paper/table.csv")
        self.write("store/notes.txt")
        self.write("store/results/abcdef0123456789abcdef01/0.png")
        server = self.started()
        self.assertFalse((self.store / "results/abcdef0123456789abcdef01").exists(), "a removal that was cut short")
        self.assertTrue(server.ask("DELETE", f"/jobs/{job}").json["removed"])
        self.assertFalse((self.store / f"results/{job}/0.png").exists())
        for kept in (f"results/{job}/notes.txt", "results/paper/table.csv", "notes.txt"):
            self.assertEqual((self.store / kept).read_text(), "precious")

    def test_temporary_folders_of_others(self):
        self.write("tessera-serve-abcdef/lock")
        self.write("tessera-serve-abcdef/jobs.sqlite")
        self.write("tessera-serve-abcdef/thesis.txt")
        named = Server("--store", self.folder / "tessera-serve-ghijkl", store=False)
        self.addCleanup(named.close)
        job = named.wait(named.submit())["id"]
        named.end()
        before = tree(self.folder)
        other = Server(store=False, env={**os.environ, "TMPDIR": str(self.folder)})
        self.addCleanup(other.close)
        other.end()
        self.assertEqual(tree(self.folder), before)
        named.start()
        self.assertEqual(named.get(f"/jobs/{job}").status, 200)

    def test_all_is_its_owners(self):
        self.store.mkdir(mode=0o755)
        self.store.chmod(0o755)
        before = os.umask(0o000)
        self.addCleanup(os.umask, before)
        server = self.started()
        server.wait(server.submit(CIRCLE, previews=1))
        for path in (self.store, *self.store.rglob("*")):
            self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o700 if path.is_dir() else 0o600, path)

    def test_what_was_removed_is_not_in_the_file(self):
        server = self.started_with_texts()
        secret = b"davesecretdave"
        job = server.submit({"prompt": f"sort {secret.decode()}="}, "tasks-a")
        server.wait(job)
        files = [self.store / name for name in ("jobs.sqlite", "jobs.sqlite-wal")]
        self.assertTrue(any(secret in path.read_bytes() for path in files))
        self.assertTrue(server.ask("DELETE", f"/jobs/{job}").json["removed"])
        until = time.monotonic() + 20
        while any(secret in path.read_bytes() for path in files if path.exists()):
            self.assertLess(time.monotonic(), until)
            time.sleep(0.1)
        server.end()
        self.assertNotIn(secret, (self.store / "jobs.sqlite").read_bytes())

    def started_with_texts(self):
        server = Server("--store", self.store, models=("shapes", "tasks-a"), store=False)
        self.addCleanup(server.close)
        return server


class Filled(Keyed):
    """Clients that fill the disk."""

    arguments = ("--store-limit", "300kB", "--at-once", "1", "--batch", "1")
    models = ("shapes", "tasks-a")

    def tearDown(self):
        self.empty()

    def bytes_of_results(self):
        return sum(path.stat().st_size for path in (self.server.folder / "store/results").rglob("*.png"))

    def test_the_oldest_of_who_has_most_go(self):
        kept = self.done("bert")
        first = self.done("anna")
        for _ in range(60):
            self.done("anna")
        self.until(lambda: self.bytes_of_results() <= 300_000)
        self.assertEqual(self.ask("anna", "GET", f"/jobs/{first}").status, 404, "the oldest goes")
        self.assertEqual(self.ask("bert", "GET", f"/jobs/{kept}/results/0").status, 200, "within its share")
        self.assertTrue(self.ask("anna", "GET", "/jobs").json["jobs"], "the newest stay")

    def test_what_waits_is_not_removed_and_fills_a_share_alone(self):
        self.submit("anna", LONG)
        texts = {"prompt": "x", "stop": ["y" * 4000 + str(i) for i in range(10)]}
        statuses = [self.ask("anna", "POST", "/jobs", {"model": "tasks-a", "request": texts}).status for _ in range(12)]
        self.assertEqual(statuses[0], 202)
        self.assertEqual(statuses[-1], 507)
        refused = self.ask("anna", "POST", "/jobs", {"model": "tasks-a", "request": texts})
        self.assertNotIn(str(self.server.folder), refused.message)
        self.assertEqual(self.ask("bert", "POST", "/jobs", {"model": "shapes", "request": CIRCLE}).status, 202)

    def test_a_job_that_never_ran_leaves_nothing(self):
        blocker = self.submit("anna", LONG)
        self.until(lambda: self.ask("anna", "GET", f"/jobs/{blocker}").json["state"] == "running")
        secret = "cancelledsecretcancelled"
        for i in range(50):
            job = self.submit("anna", {"prompt": f"{secret}{i}"}, "tasks-a")
            self.assertEqual(self.ask("anna", "DELETE", f"/jobs/{job}?cancel=1").json["state"], "cancelled")
        listed = self.ask("anna", "GET", "/jobs?limit=200").json["jobs"]
        self.assertFalse([job for job in listed if secret in json.dumps(job)])
        database = self.server.folder / "store/jobs.sqlite"
        self.until(lambda: not any(secret.encode() in pathlib.Path(f"{database}{end}").read_bytes() for end in ("", "-wal")))

    def test_a_list_is_short_whatever_was_asked(self):
        self.submit("bert", LONG)
        texts = {"prompt": "x", "stop": ["y" * 3000 + str(i) for i in range(8)]}
        for _ in range(3):
            self.submit("bert", texts, "tasks-a")
        answer = self.ask("bert", "GET", "/jobs?limit=200")
        self.assertLess(len(answer.body), 20000 * len(answer.json["jobs"]) // 4)
        one = next(job for job in answer.json["jobs"] if job["model"] == "tasks-a")
        self.assertEqual(one["shortened"], ["request"])
        whole = self.ask("bert", "GET", f"/jobs/{one['id']}").json
        self.assertEqual(whole["request"], texts)

    def test_a_result_above_the_limit_is_no_result(self):
        server = self.another_keyed("--store-limit", "1kB")
        job = server.post("/jobs", {"model": "shapes", "request": CIRCLE}, **self.key("anna")).json["id"]
        self.until(lambda: server.get(f"/jobs/{job}", **self.key("anna")).json["state"] == "failed")
        error = server.get(f"/jobs/{job}", **self.key("anna")).json["error"]
        self.assertEqual(error["type"], "storage")
        self.assertEqual(list((server.folder / "store/results").rglob("*.png")), [])


if __name__ == "__main__":
    main()
