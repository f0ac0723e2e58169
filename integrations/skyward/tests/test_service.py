"""The daemon on a node: started once, found by programs, ended with the block. Needs `cumux` on the path; uses the software GPU."""

import os
import subprocess
import sys
import tempfile
import unittest

from cumux_skyward import ServiceError, Settings
from cumux_skyward.service import serving

PROGRAM = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
assert cuda.cuInit(0) == 0
context, device, pointer = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_uint64()
assert cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0 and cuda.cuCtxSetCurrent(context) == 0
small, large = (cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size << 20)) for size in (16, 3000))
count = ctypes.c_int()
assert cuda.cuDeviceGetAttribute(ctypes.byref(count), 16, device) == 0
print(small, large, count.value)
"""


class Service(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="cx", dir="/tmp")
        self.addCleanup(self.folder.cleanup)

    def settings(self, **more):
        return Settings(device="sim:h200", pipe=self.folder.name + "/pipe", log=self.folder.name + "/log", **more)

    def ask(self, settings, *words):
        return subprocess.run(["cumux", "control", *words], env=settings.daemon_environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True)

    def test_programs_are_served_within_their_limits_and_the_daemon_ends(self):
        settings = self.settings(memory="2G", percentage=50, isolation="own")
        before = dict(os.environ)
        with serving(settings):
            said = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
            self.assertEqual(said.stdout.split(), ["0", "2", "66"], said.stderr)
            with serving(settings):
                pass
            self.assertEqual(self.ask(settings, "get_default_isolation").returncode, 0, "whoever found a daemon leaves it there")
            self.assertEqual(self.ask(settings, "get_default_active_thread_percentage").stdout, "100.0\n", "a client's share is no ceiling of all")
        self.assertNotEqual(self.ask(settings, "get_default_isolation").returncode, 0)
        self.assertEqual(dict(os.environ), before)

    def test_without_a_daemon_nothing_goes_on(self):
        with self.assertRaisesRegex(ServiceError, "does not start: .*sim:nothing"):
            with serving(Settings(device="sim:nothing", pipe=self.folder.name + "/pipe", log=self.folder.name + "/log")):
                self.fail("it went on")
        path = os.environ["PATH"]
        os.environ["PATH"] = "/usr/bin:/bin"
        try:
            with self.assertRaisesRegex(ServiceError, "not installed on this node"):
                with serving(self.settings()):
                    self.fail("it went on")
        finally:
            os.environ["PATH"] = path

    def test_settings_that_cannot_be_kept_are_refused(self):
        for wrong, words in [
            ({"memory": "2GB"}, "write a size"),
            ({"memory": "all"}, "write a size"),
            ({"percentage": 0}, "above 0"),
            ({"percentage": 101}, "at most 100"),
            ({"isolation": "mine"}, 'write "own"'),
            ({"pipe": "here"}, "absolute path"),
        ]:
            with self.assertRaisesRegex(ValueError, words):
                Settings(**wrong).check()
        self.assertEqual(Settings(memory="0=2G,1=512M").environment()["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"], "0=2G,1=512M")


if __name__ == "__main__":
    unittest.main()
