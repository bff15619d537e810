"""in_ray_venv.py TEST [ARGUMENT...]: runs a test with the system's torch and PyPI's Ray
(system_venv.py)."""
from system_venv import run

if __name__ == "__main__":
    run("ray", "Ray")
