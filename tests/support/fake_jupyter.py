"""Stands in for JupyterLab on a head: reads its settings as Jupyter does, and answers at its socket."""

import asyncio
import json
import os
import sys
from pathlib import Path

COMMAND = (sys.executable, __file__)
FAILING = (sys.executable, "-c", "print('the reason'); raise SystemExit(3)")


def application(base, place):
    from aiohttp import web

    async def told(request):
        shown = {name: value for name, value in request.headers.items()}
        body = {
            "path": request.raw_path,
            "method": request.method,
            "headers": shown,
            "body": await request.text(),
        }
        headers = {"Set-Cookie": "username=x", "X-Own": "1"}
        return web.json_response(body, headers=headers)

    async def kernels(request):
        return web.json_response(json.loads((place / "kernels").read_text()))

    async def echo(request):
        socket = web.WebSocketResponse(protocols=("v1.kernel.websocket.jupyter.org",))
        await socket.prepare(request)
        async for message in socket:
            if message.data == "end":
                break
            await (socket.send_str if isinstance(message.data, str) else socket.send_bytes)(
                message.data
            )
        return socket

    async def away(request):
        raise web.HTTPFound(f"{base}lab")

    app = web.Application()
    app.add_routes(
        [
            web.get(f"{base}api/kernels", kernels),
            web.get(f"{base}channels", echo),
            web.get(f"{base}away", away),
            web.route("*", "/{path:.*}", told),
        ]
    )
    return app


async def main():
    from aiohttp import web

    place = Path(os.environ["JUPYTER_CONFIG_DIR"])
    settings = json.loads((place / "jupyter_server_config.json").read_text())["ServerApp"]
    (place / "kernels").write_text("[]")
    runner = web.AppRunner(application(settings["base_url"], place))
    await runner.setup()
    await web.UnixSite(runner, settings["sock"]).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
