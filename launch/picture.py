"""Writing a picture: whole or not at all."""
import matplotlib.pyplot as plt


def save(figure, path):
    part = path.with_name(path.stem + ".part.png")
    figure.savefig(part)
    plt.close(figure)
    part.replace(path)
    print(path)
