#!/usr/bin/env python3
"""Edits and variations of images, in OpenAI's form and as fields of jobs."""

import base64
import random
import struct
import time
import zlib

from serving import SOURCE, ServerTest, main

KLEIN = str(SOURCE / "tests/data/diffusers/flux2_klein_base/model")
REFERENCE = (SOURCE / "tests/data/diffusers/flux2_klein_base/reference.png").read_bytes()
PROMPT = "a red circle left of a blue square"


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width, height, channels=3, pixel=lambda x, y: (x * 5 % 256, y * 7 % 256, 99, 255 if x < 32 else 0)):
    lines = b"".join(b"\0" + b"".join(bytes(pixel(x, y)[:channels]) for x in range(width)) for y in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, {3: 2, 4: 6}[channels], 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")


def form(*parts, boundary="b0undary"):
    """(name, text or (file name, bytes))"""
    body = b""
    for name, value in parts:
        body += f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"'.encode()
        if isinstance(value, tuple):
            body += f'; filename="{value[0]}"\r\nContent-Type: application/octet-stream'.encode()
        body += b"\r\n\r\n" + (value[1] if isinstance(value, tuple) else str(value).encode()) + b"\r\n"
    return body + f"--{boundary}--\r\n".encode()


class Edits(ServerTest):
    models = ("scenes", "shapes", "tasks-a", KLEIN)

    def edit(self, *parts, path="/v1/images/edits", boundary="b0undary"):
        kind = f"multipart/form-data; boundary={boundary}"
        return self.server.ask("POST", path, form(*parts, boundary=boundary), {"Content-Type": kind})

    def made(self, *parts, **more):
        answer = self.edit(("response_format", "b64_json"), ("steps", 4), ("seed", 3), *parts, **more)
        self.assertEqual(answer.status, 200, answer.body[:500])
        return [one["b64_json"] for one in answer.json["data"]]

    def refused(self, param, *parts, status=400, **more):
        answer = self.edit(*parts, **more)
        self.assertEqual(answer.status, status, answer.body[:500])
        self.assertEqual(answer.json["error"]["param"] or "", param, answer.message)
        self.assertNotIn("\n", answer.message)
        return answer.message

    def test_an_edit_starts_from_the_image(self):
        image = ("image", ("a.png", png(64, 64)))
        scene = (("model", "scenes"), ("prompt", PROMPT), image)
        one = self.made(*scene)
        self.assertEqual(one, self.made(*scene), "it follows its seed")
        self.assertNotEqual(one, self.made(*scene, ("strength", 0.9)))
        self.assertNotEqual(one, self.made(("model", "scenes"), ("prompt", PROMPT), ("image", ("a.png", png(64, 96)))))
        self.assertEqual(len(self.made(*scene, ("n", 2))), 2)
        as_json = {"model": "scenes", "prompt": PROMPT, "image": base64.b64encode(image[1][1]).decode(), "steps": 4,
                   "seed": 3, "response_format": "b64_json"}
        self.assertEqual(one[0], self.server.post("/v1/images/edits", as_json).json["data"][0]["b64_json"])

    def test_a_mask_says_where(self):
        scene = (("model", "scenes"), ("prompt", PROMPT), ("image", ("a.png", png(64, 64))))
        whole = self.made(*scene)
        clear = ("mask", ("m.png", png(64, 64, 4)))  # transparent on the right
        white = ("mask", ("m.png", png(64, 64, 3, lambda x, y: (0 if x < 32 else 255,) * 3)))
        right = self.made(*scene, clear)
        self.assertNotEqual(right, whole)
        self.assertEqual(right, self.made(*scene, white), "a mask without transparency is white there")

    def test_references_stand_beside_the_prompt(self):
        klein = (("model", "model"), ("prompt", "an owl"), ("size", "48x64"), ("text_tokens", 32))
        one = self.made(*klein, ("image[]", ("a.png", REFERENCE)))
        two = self.made(*klein, ("image[]", ("a.png", REFERENCE)), ("image[]", ("b.png", png(64, 64))))
        self.assertNotEqual(one, two)
        self.assertEqual(one, self.made(*klein, ("image", ("a.png", REFERENCE))))

    def test_a_variation_has_no_prompt(self):
        image = ("image", ("a.png", png(64, 64)))
        answers = self.made(("model", "scenes"), image, ("n", 2), path="/v1/images/variations")
        self.assertEqual(len(set(answers)), 2)
        self.assertIn("a variation has none", self.refused("mask", ("model", "scenes"), image, ("mask", ("m.png", png(64, 64))),
                                                           path="/v1/images/variations"))

    def test_jobs_have_images_too(self):
        request = {"prompt": PROMPT, "steps": 2, "image": base64.b64encode(png(64, 64)).decode(), "strength": 0.5}
        job = self.server.submit(request, model="scenes")
        shown = self.server.wait(job)
        self.assertEqual(shown["state"], "done", shown)
        self.assertRegex(shown["request"]["image"], "^[0-9]+ bytes$")

    def test_models_without_the_ability_are_named(self):
        image = ("image", ("a.png", png(64, 64)))
        self.assertIn("'shapes' makes images of classes", self.refused("model", ("model", "shapes"), ("prompt", "red circle"), image))
        self.assertIn("'tasks-a' makes no images", self.refused("model", ("model", "tasks-a"), ("prompt", "x"), image))
        self.assertIn("was given 2 times",
                      self.refused("image", ("model", "scenes"), ("prompt", PROMPT), image, image))

    def test_wrong_fields_are_named(self):
        image, scene = ("image", ("a.png", png(64, 64))), (("model", "scenes"), ("prompt", PROMPT))
        self.refused("image", *scene)
        self.refused("prompt", ("model", "scenes"), image)
        self.refused("strength", *scene, image, ("strength", 1.5))
        self.refused("strength", *scene, image, ("strength", "much"))
        self.refused("nonsense", *scene, image, ("nonsense", 1))
        self.refused("size", *scene, image, ("size", "huge"))
        self.refused("output_format", *scene, image, ("output_format", "svg"))
        self.refused("response_format", *scene, image, ("response_format", "xml"))
        self.refused("prompt", *scene, ("prompt", "again"), image)
        self.refused("note", *scene, image, ("note", ("x.txt", b"x")))
        self.refused("image", *scene, *[image] * 17)
        self.assertEqual(self.server.ask("POST", "/v1/images/edits", b"x", {"Content-Type": "text/plain"}).status, 415)
        self.assertEqual(self.server.ask("POST", "/jobs", form(), {"Content-Type": "multipart/form-data; boundary=b0undary"}).status, 415)

    def test_a_hundred_hostile_images_are_refused_in_a_line(self):
        """Damaged, truncated, huge and other files."""
        whole, random_ = png(64, 64), random.Random(5)
        hostile = [b"", b"x", b"\x89PNG", b"GIF89a" + bytes(50), b"\xff\xd8\xff", b"RIFF\0\0\0\0WEBPVP8 ", b"<svg/>", bytes(1000)]
        hostile += [whole[:size] for size in range(1, len(whole) - 12, max(1, len(whole) // 60))]
        for width, height in ((0, 1), (1, 0), (2**31 - 1, 2**31 - 1), (100000, 100000), (1 << 26, 2), (2**32 - 1, 1)):
            hostile.append(whole[:8] + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) + whole[33:])
        for kind, depth in ((2, 3), (7, 8), (255, 255), (3, 8)):
            hostile.append(whole[:8] + chunk(b"IHDR", struct.pack(">IIBBBBB", 64, 64, depth, kind, 0, 0, 0)) + whole[33:])
        bomb = zlib.compress(bytes(1 << 24))
        hostile.append(whole[:33] + chunk(b"IDAT", bomb[:2000]) + chunk(b"IEND", b""))
        while len(hostile) < 110:
            hostile.append(whole[:40] + random_.randbytes(60) + chunk(b"IEND", b""))
        begun = time.monotonic()
        for number, data in enumerate(hostile):
            with self.subTest(number=number, begin=data[:40]):
                self.refused("image", ("model", "scenes"), ("prompt", PROMPT), ("image", ("a.png", data)))
        self.assertLess(time.monotonic() - begun, 240)
        self.assertEqual(self.server.get("/healthz").status, 200)

    def test_hostile_forms_are_refused(self):
        good = form(("model", "scenes"), ("prompt", PROMPT), ("image", ("a.png", png(64, 64))))
        kind = "multipart/form-data; boundary=b0undary"
        bodies = [b"", b"--b0undary", b"--b0undary--" + good, good[:-20], good.replace(b"--b0undary--", b"--b0undary"),
                  good.replace(b"form-data", b"attachment"), good.replace(b'name="', b'name=', 1), good + b"behind", b"\r\n" + good,
                  good.replace(b"application/octet-stream", b"multipart/mixed; boundary=x"),
                  b"--b0undary\r\nX: " + b"x" * 100000 + b"\r\n\r\n\r\n--b0undary--",
                  form(*[(f"a{i}", i) for i in range(1000)]), b"--b0undary\r\n" * 50000]
        for body in bodies:
            answer = self.server.ask("POST", "/v1/images/edits", body, {"Content-Type": kind})
            self.assertEqual(answer.status, 400, body[:80])
            self.assertNotIn("\n", answer.message)
        for other in ("multipart/form-data", "multipart/form-data; boundary=", "multipart/form-data; boundary=" + "x" * 80):
            self.assertEqual(self.server.ask("POST", "/v1/images/edits", good, {"Content-Type": other}).status, 400)
        connection = self.server.connect()
        connection.putrequest("POST", "/v1/images/edits")
        connection.putheader("Content-Type", kind)
        connection.putheader("Content-Length", str((16 << 20) + 1))
        connection.endheaders()
        self.assertEqual(connection.getresponse().status, 413)
        connection.close()
        self.assertEqual(self.server.get("/healthz").status, 200)


if __name__ == "__main__":
    main()
