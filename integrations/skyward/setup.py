"""Puts `cumux_skyward.pth` beside the package: Python runs it at the start of every process of the environment (src/cumux_skyward/register.py)."""

import os

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithHook(build_py):
    def run(self):
        super().run()
        self.mkpath(self.build_lib)
        self.copy_file(os.path.join("src", "cumux_skyward.pth"), os.path.join(self.build_lib, "cumux_skyward.pth"))


setup(cmdclass={"build_py": BuildWithHook})
