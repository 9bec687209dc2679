"""Images by HTTP from many machines, by Ray Serve: replicas that hold the model, behind one that reads requests.

    MODEL=scenes serve run --app-dir examples/ray serve_images:app
    curl 'http://127.0.0.1:8000/?prompt=a+red+circle&steps=8&seed=1' -o circle.png

Each replica makes one image at a time; further requests wait, and beyond 64 of them get status 503. A replica that
dies is replaced, and what it was at is made by another one: the seed is part of the request, so it is the same image.
"""

import asyncio
import io
import os

from ray import serve
from ray.exceptions import RayActorError
from ray.serve.exceptions import BackPressureError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

ARGUMENTS = {"prompt": ("prompt", str), "class": ("class_labels", str), "steps": ("num_inference_steps", int),
             "seed": ("generator", int), "guidance": ("guidance_scale", float), "width": ("width", int),
             "height": ("height", int)}
TRIES = 3


# Some requests wait at a replica: where each waits at the router, a replica stands still between two of them.
@serve.deployment(max_ongoing_requests=4, max_queued_requests=64)
class Images:
    """A replica: holds the model, and makes an image at a time."""

    def __init__(self, model, threads):
        import tessera  # on the replica's machine

        self.tessera = tessera
        self.pipe = tessera.Pipeline.from_pretrained(model, threads=threads)
        self.turn = asyncio.Lock()

    async def __call__(self, arguments):
        """A PNG and the process that made it, or what is wrong with the request. Who leaves stops it within a step."""
        cancel = self.tessera.CancelToken()
        try:
            async with self.turn:  # on a thread of its own: a run does not hold the GIL
                made = await asyncio.to_thread(self.pipe, **arguments, cancel=cancel)
        except self.tessera.UsageError as error:
            return {"error": str(error)}
        except asyncio.CancelledError:
            cancel.cancel()
            raise
        out = io.BytesIO()
        made.images[0].save(out, "PNG")
        return {"png": out.getvalue(), "worker": os.getpid()}


@serve.deployment(max_ongoing_requests=256, ray_actor_options={"num_cpus": 0})
class Front:
    """Reads requests, and finds them a replica that lives."""

    def __init__(self, images):
        self.images = images

    async def __call__(self, request: Request) -> Response:
        try:
            arguments = {argument: kind(request.query_params[name])
                         for name, (argument, kind) in ARGUMENTS.items() if name in request.query_params}
        except ValueError as error:
            return JSONResponse({"error": str(error)}, 400)
        for left in reversed(range(TRIES)):
            try:
                made = await self.images.remote(arguments)
            except BackPressureError:
                return JSONResponse({"error": "all replicas are busy"}, 503, {"Retry-After": "5"})
            except RayActorError:
                if left == 0:
                    raise
            else:
                break
        if "error" in made:
            return JSONResponse(made, 400)
        return Response(made["png"], media_type="image/png", headers={"X-Worker": str(made["worker"])})


def build(model="shapes", replicas=2, threads=1):
    """The application of a model; each replica takes `threads` cores."""
    images = Images.options(num_replicas=replicas, ray_actor_options={"num_cpus": threads})
    return Front.bind(images.bind(model, threads))


app = build(os.environ.get("MODEL", "shapes"))
