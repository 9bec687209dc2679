"""What a wheel holds: the module, the package and the shipped models, which it finds by itself."""

import pathlib
import shutil
import subprocess

from conftest import PROGRAM, SOURCE, python

BUILD = pathlib.Path(PROGRAM).parent
THREE_LINES = """
import tessera
pipe = tessera.Pipeline.from_pretrained("shapes")
pipe(class_labels="red circle").images[0].save("circle.png")
"""


def test_the_installed_package(tmp_path):
    subprocess.run(["cmake", "--install", BUILD, "--component", "python", "--prefix", tmp_path],
                   check=True, stdout=subprocess.DEVNULL)
    installed = tmp_path / "tessera"
    assert sorted(path.name for path in (installed / "models").iterdir()) == sorted(
        path.name for path in (SOURCE / "models").iterdir())
    # The package's own files are copied by scikit-build-core.
    shutil.copytree(SOURCE / "python/tessera", installed, dirs_exist_ok=True)
    # A shipped model that only this package has.
    shutil.move(installed / "models/shapes", installed / "models/carried")
    assert python(THREE_LINES.replace('"shapes"', '"carried"').replace(
        '"circle.png"', f'"{tmp_path}/circle.png"') + """
print(tessera.__file__)
print(tessera.LanguageModel.from_pretrained("tasks-a").generate("sort hello=").text)
""", PYTHONPATH=str(tmp_path)) == f"{installed}/__init__.py\nehllo\n"
    assert (tmp_path / "circle.png").stat().st_size > 1000


def test_other_folders_come_first(tmp_path):
    (tmp_path / "shapes").mkdir()
    for folder, variables in ((tmp_path, {}), (SOURCE, {"TESSERA_MODELS": str(tmp_path)})):
        assert "ModelError\n" == python(f"""
import os, tessera
os.chdir({str(folder)!r})
try:
    tessera.Pipeline.from_pretrained("shapes")
except tessera.ModelError as error:
    print(type(error).__name__)
""", **variables)


def test_nothing_of_the_library_is_exported():
    module = next((BUILD / "python/tessera").glob("_core*.so"))
    listed = subprocess.run(["nm", "-D", "--defined-only", module], text=True, capture_output=True)
    names = [line.split()[-1] for line in listed.stdout.splitlines()]
    assert "PyInit__core" in names
    assert not [name for name in names if name.startswith("_ZN7tessera")]


def test_the_import_begins_no_thread():
    assert python("""
import os, numpy
before = len(os.listdir("/proc/self/task"))
import tessera
print(len(os.listdir("/proc/self/task")) - before)
""") == "0\n"
