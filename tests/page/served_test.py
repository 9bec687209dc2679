#!/usr/bin/env python3
"""The files of the page as the program serves them: as they stand in the tree, with headers that browsers need."""

import http.client
import unittest

from browser import SOURCE, Server, main

PAGE = SOURCE / "apps/server/page"
TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
         ".svg": "image/svg+xml"}


class Served(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(("shapes",))
        cls.addClassCleanup(cls.server.close)

    def get(self, path, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=30)
        self.addCleanup(connection.close)
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer, answer.read()

    def test_every_file(self):
        for path in sorted(PAGE.iterdir()):
            with self.subTest(path.name):
                place = "/" if path.name == "index.html" else f"/assets/{path.name}"
                answer, body = self.get(place)
                self.assertEqual((answer.status, body), (200, path.read_bytes()))
                self.assertEqual(answer.getheader("Content-Type"), TYPES[path.suffix])
                self.assertEqual(answer.getheader("X-Content-Type-Options"), "nosniff")
                again, nothing = self.get(place, **{"If-None-Match": answer.getheader("ETag")})
                self.assertEqual((again.status, nothing), (304, b""))

    def test_what_a_browser_may_do(self):
        policy = self.get("/")[0].getheader("Content-Security-Policy")
        self.assertIn("default-src 'self'; img-src 'self' data: blob:;", policy)
        self.assertNotIn("unsafe", policy)

    def test_no_other_file(self):
        for path in ("/assets/", "/assets/nothing.js", "/assets/../page.h", "/assets/%2e%2e/page.h", "/assets//etc/passwd"):
            self.assertEqual(self.get(path)[0].status, 404, path)
        self.assertEqual(self.get("/assets/index.html%00.js")[0].status, 400)

    def test_the_page_names_only_itself(self):
        for path in PAGE.iterdir():
            text = path.read_text().replace("http://www.w3.org/2000/svg", "")
            for word in ("http:", "https:", "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", " style=", "onclick="):
                self.assertNotIn(word, text, path.name)


if __name__ == "__main__":
    main()
