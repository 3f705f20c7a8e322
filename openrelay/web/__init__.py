"""The web server: buffers requests in an event loop, and runs Django on a bounded number of threads.

`python -m openrelay.web` is the parent process (`parent.py`). It starts the workers (`worker.py`) and
replaces one that ends or does not answer. A worker speaks HTTP (`protocol.py`, on uvicorn), refuses or
buffers each request (`application.py`) and hands it to a thread (`threads.py`) that runs Django.
"""
