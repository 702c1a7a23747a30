"""What pyproject.toml cannot say: the packages are in two places, and folders of data become parts of `syncline`."""

from setuptools import find_packages, setup

OURS = ["runners", "reports", "slurm"]  # beside src/
DATA = ["conf", "reference", "docs/findings"]  # in a checkout: at the top (src/syncline/installation.py finds both)
IN_WHEEL = {f"syncline.{folder.replace('/', '.')}": folder for folder in DATA}

setup(
    packages=[*find_packages("src"), *find_packages(include=[f"{name}*" for name in OURS]), *IN_WHEEL],
    package_dir={"": "src", **{name: name for name in OURS}, **IN_WHEEL},
    package_data={
        "syncline.datasets": ["digits-order.txt"],
        "reports": ["published/*.yaml", "templates/*"],
        "runners": ["shells/*", "starts/**/*.py", "starts/**/*.yaml"],
        "slurm": ["*.sbatch", "*.yaml"],
        **{name: ["**/*.*"] for name in IN_WHEEL},
    },
    include_package_data=False,
)
