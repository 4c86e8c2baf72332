"""embed.py OUTPUT FOLDER...: the files of the templates as a table in C++, so that the tool has them wherever it lies.
The source of template-layer is the bundled layer `count`.
"""
import pathlib
import sys


def row(folder, name, file):
    return f'{{"{folder}", "{name}", R"emm({file.read_text(encoding="utf-8")})emm"}},\n'


def main(output, *folders):
    rows = []
    for folder in map(pathlib.Path, folders):
        for file in sorted(path for path in folder.iterdir() if path.is_file()):
            rows.append(row(folder.name, file.name, file))
    rows.append(row("template-layer", "layer.c", folder.parent / "layers/count.c"))
    pathlib.Path(output).write_text("".join(rows), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
