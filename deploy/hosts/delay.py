#!/usr/bin/env python3
"""Passes connections on and delays what is said on them, as a longer way would: delay.py ROUND_TRIP_MS PORT:HOST:PORT...

Each direction is delayed by half the round trip, without slowing the stream. Opening a connection is not delayed.
"""

import asyncio
import sys


async def pass_on(reader, writer, delay_s):
    """What is read leaves `delay_s` later."""
    loop = asyncio.get_running_loop()
    line = asyncio.Queue(maxsize=1024)

    async def take():
        while data := await reader.read(65536):
            await line.put((loop.time() + delay_s, data))
        await line.put((loop.time() + delay_s, None))

    async def give():
        while True:
            due, data = await line.get()
            await asyncio.sleep(due - loop.time())
            if data is None:
                if writer.can_write_eof():
                    writer.write_eof()
                return
            writer.write(data)
            await writer.drain()

    await asyncio.gather(take(), give())


async def serve(listen, host, port, delay_s):
    async def connected(reader, writer):
        try:
            out_reader, out_writer = await asyncio.open_connection(host, port)
        except OSError:
            writer.transport.abort()
            return
        try:
            await asyncio.gather(pass_on(reader, out_writer, delay_s), pass_on(out_reader, writer, delay_s))
        except OSError:
            pass
        finally:
            # Whoever goes away is gone for the other side too.
            writer.transport.abort()
            out_writer.transport.abort()

    server = await asyncio.start_server(connected, "0.0.0.0", listen)
    await server.serve_forever()


async def main():
    delay_s = float(sys.argv[1]) / 2000
    ways = [way.split(":") for way in sys.argv[2:]]
    await asyncio.gather(*(serve(int(listen), host, int(port), delay_s) for listen, host, port in ways))


asyncio.run(main())
