"""Writing a picture: whole or not at all."""
import sys

import matplotlib.pyplot as plt


def save(figure, path):
    if not path.name or (path.exists() and not path.is_file()):
        sys.exit(f"{path} is no file that a picture could be")
    if not path.parent.is_dir():
        sys.exit(f"{path.parent} is no directory, so {path.name} cannot be written there")
    part = path.with_name(path.stem + ".part.png")
    figure.savefig(part)
    plt.close(figure)
    part.replace(path)
    print(path)
