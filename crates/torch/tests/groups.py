"""Cards of several slices for tests: a server for each, all on loopback."""

import secrets
import threading

import serving
from pools import free_port


class Group(serving.Server):
    """The servers of one card; programs talk to the first."""

    def __init__(self, folder, slices, *options, split="layers", environment=(), each=(), address=None, errors=None, epoch=7, **more):
        """`slices` are the options of each server beside its memory: (memory, option, ...); `each` is what else is in its environment."""
        token, address = secrets.token_hex(16), address or f"tcp:127.0.0.1:{free_port()}"
        environment = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "OMP_NUM_THREADS": "1", **dict(environment)}
        self.split, self.others = split, [None] * (len(slices) - 1)
        each = [{**environment, **own} for own in each or [{}] * len(slices)]

        def start(rank):
            memory, *own = slices[rank]
            words = ("--rank", rank, "--of", len(slices), "--group", address, *own)
            self.others[rank - 1] = serving.Server(folder, *words, listen="", memory=memory, token=token, epoch=epoch, environment=each[rank], errors=errors)

        starting = [threading.Thread(target=start, args=(rank,)) for rank in range(1, len(slices))]
        for thread in starting:
            thread.start()
        memory, *own = slices[0]
        words = ("--rank", 0, "--of", len(slices), "--group", address, "--split", split, *own, *options)
        super().__init__(folder, *words, memory=memory, token=token, epoch=epoch, environment=each[0], errors=errors, **more)
        for thread in starting:
            thread.join()

    def stop(self):
        super().stop()
        for other in self.others:
            if other is not None:
                other.stop()


class Kept(Group):
    """One that saves itself into a folder when it is told to stop, and goes on from what is there."""

    def __init__(self, folder, checkpoints, slices, *options, more_environment=(), **more):
        environment = {**dict(more_environment), "TESSERA_CHECKPOINT_DIR": str(checkpoints)}
        super().__init__(folder, slices, "--checkpoints", *options, environment=environment, listen="tcp:127.0.0.1:0", **more)

    def suspend(self):
        """As an agent does: tells the first server to stop, and waits. The others end with it."""
        self.process.terminate()
        codes = [self.process.wait(60), *(other.process.wait(60) for other in self.others)]
        self.stop()
        return codes
