"""Both generations of Skyward: its own plugin for MPS as it stands, and ours. Which of them is tested depends on what is installed."""

import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest

NEW = importlib.util.find_spec("skyward") is not None and importlib.util.find_spec("skyward.worker") is not None
OLD = importlib.util.find_spec("skyward") is not None and importlib.util.find_spec("skyward.api") is not None and not NEW


@unittest.skipUnless(NEW, "Skyward 0.11 or later is not installed")
class Later(unittest.TestCase):
    def test_the_plugin_travels_by_name(self):
        from cumux_skyward import cumux

        made = cumux(memory="2G", percentage=12.5, isolation="own")
        # As a worker does it, in a process that has never heard of us.
        code = (
            "import sys, msgspec; from skyward.worker.plugins import resolve; from skyward.shared.schemas import Image, PluginRef;"
            "[plugin] = resolve([msgspec.json.decode(sys.argv[1], type=PluginRef)]); print(repr(plugin)); print(plugin.image(Image(pip=['numpy'])).pip)"
        )
        import msgspec

        said = subprocess.run([sys.executable, "-c", code, msgspec.json.encode(made.ref()).decode()], capture_output=True, text=True)
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertEqual(said.stdout.splitlines(), [repr(made), "('numpy', 'cumux', 'cumux-skyward')"])
        with self.assertRaisesRegex(ValueError, "at most 100"):
            cumux(percentage=200)

    def test_a_process_without_skyward_starts_as_fast(self):
        said = subprocess.run([sys.executable, "-c", "import sys; print('skyward' in sys.modules, 'cumux_skyward.register' in sys.modules)"], capture_output=True, text=True)
        self.assertEqual(said.stdout, "False True\n", said.stderr)

    def test_a_worker_has_a_service_for_as_long_as_it_lives(self):
        from skyward.worker.plugins import resolve

        from cumux_skyward import cumux

        with tempfile.TemporaryDirectory(prefix="cx", dir="/tmp") as folder:
            [plugin] = resolve([cumux(device="sim:h200", percentage=25, pipe=folder + "/pipe", log=folder + "/log").ref()])
            with plugin.setup(None):
                self.assertEqual(os.environ["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"], "25")
                self.assertEqual(subprocess.run(["cumux", "status"], capture_output=True).returncode, 0)
            self.assertFalse(os.path.exists(folder + "/pipe/control"))

    def test_skywards_own_plugin_with_the_drop_in_names(self):
        from skyward.worker.plugins import Mps

        # It starts the daemon before it sets the variables; the directories are fixed.
        with Mps(active_thread_percentage=12, pinned_memory_limit="0=2G").setup(None):
            try:
                said = subprocess.run(["nvidia-cuda-mps-control", "get_server_list"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
                self.assertEqual((said.returncode, said.stderr), (0, ""))
            finally:
                subprocess.run(["nvidia-cuda-mps-control", "quit"], stdin=subprocess.DEVNULL, check=True)


@unittest.skipUnless(OLD, "Skyward up to 0.9 is not installed")
class Earlier(unittest.TestCase):
    def test_the_plugin_of_the_builder(self):
        from skyward.api.spec import Image

        from cumux_skyward import cumux

        with tempfile.TemporaryDirectory(prefix="cx", dir="/tmp") as folder:
            plugin = cumux(memory="0=2G", percentage=12.5, device="sim:h200", pipe=folder + "/pipe", log=folder + "/log")
            image = plugin.transform(Image(pip=["numpy"], env={"A": "b"}), None)
            self.assertEqual(image.env["A"], "b")
            self.assertEqual(image.env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"], "12.5")
            self.assertEqual(tuple(image.pip), ("numpy", "cumux", "cumux-skyward"))
            with plugin.around_app(None):
                self.assertEqual(subprocess.run(["cumux", "status"], capture_output=True).returncode, 0)
            self.assertFalse(os.path.exists(folder + "/pipe/control"))

    def test_skywards_own_bootstrap_as_it_stands(self):
        import skyward.plugins.mps as built_in
        from skyward.api.spec import Image
        from skyward.providers.bootstrap.compose import resolve

        plugin = built_in.mps(active_thread_percentage=12, pinned_memory_limit="0=2G")
        image = plugin.transform(Image(), None)
        script = "\n".join(resolve(op) for op in plugin.bootstrap(None))
        environment = {**os.environ, **image.env}
        try:
            said = subprocess.run(["bash", "-ec", 'emit_phase() { echo "$@"; }\n' + script], env=environment, capture_output=True, text=True)
            self.assertEqual(said.returncode, 0, said.stderr + said.stdout)
            ask = lambda *words: subprocess.run(["nvidia-cuda-mps-control", *words], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
            self.assertEqual(ask("get_default_active_thread_percentage").stdout, "12.0\n")
            self.assertEqual(ask("get_default_device_pinned_mem_limit", "0").stdout, "2G\n")
        finally:
            subprocess.run(["nvidia-cuda-mps-control", "quit"], env=environment, stdin=subprocess.DEVNULL, capture_output=True)


if __name__ == "__main__":
    unittest.main()
