"""embed.py TEMPLATES BUNDLED NAME,... FOLDER...: the files of the templates, and the names of what comes with emm, as tables
in C++, so that the tool has them wherever it lies. The source of template-layer is the bundled layer `count`.
"""
import pathlib
import sys


def row(folder, name, file):
    return f'{{"{folder}", "{name}", R"emm({file.read_text(encoding="utf-8")})emm"}},\n'


def main(output, bundled, names, *folders):
    rows = []
    for folder in map(pathlib.Path, folders):
        for file in sorted(path for path in folder.iterdir() if path.is_file()):
            rows.append(row(folder.name, file.name, file))
    rows.append(row("template-layer", "layer.c", folder.parent / "layers/count.c"))
    pathlib.Path(output).write_text("".join(rows), encoding="utf-8")
    listed = "".join(f'"{name}",\n' for name in sorted(names.split(",")))
    pathlib.Path(bundled).write_text(listed, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
