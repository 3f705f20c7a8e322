"""The queue before the threads: bounded, and fair between clients."""

import threading

from openrelay.web.threads import Threads


class Ground:
    """Threads whose jobs wait for `go`, and what became of each job."""

    def __init__(self, number: int, queue: int, seconds: float = 60) -> None:
        self.threads = Threads(number, queue, seconds)
        self.go = threading.Event()
        self.ran: list[str] = []
        self.refused: list[str] = []
        self.started = threading.Semaphore(0)
        self.done = threading.Semaphore(0)

    def put(self, client: str, name: str) -> None:
        """Queue a job of that client."""

        def run() -> None:
            self.started.release()
            self.go.wait(60)
            self.ran.append(name)
            self.done.release()

        def refuse() -> None:
            self.refused.append(name)
            self.done.release()

        self.threads.put(client, run, refuse)

    def finish(self, jobs: int) -> None:
        """Let them run, and wait until all have."""
        self.go.set()
        for _ in range(jobs):
            assert self.done.acquire(timeout=60)


def test_clients_are_served_in_turn() -> None:
    ground = Ground(1, 100)
    ground.put("first", "first-0")
    assert ground.started.acquire(timeout=60)
    for number in range(1, 6):
        ground.put("first", f"first-{number}")
    ground.put("second", "second-0")
    ground.put("third", "third-0")
    ground.finish(8)
    assert ground.ran[:4] == ["first-0", "first-1", "second-0", "third-0"]


def test_a_full_queue_refuses_the_client_that_has_the_most_in_it() -> None:
    ground = Ground(1, 4)
    ground.put("greedy", "greedy-0")
    assert ground.started.acquire(timeout=60)
    for number in range(1, 7):
        ground.put("greedy", f"greedy-{number}")
    assert ground.refused == ["greedy-5", "greedy-6"]
    ground.put("modest", "modest-0")
    assert ground.refused == ["greedy-5", "greedy-6", "greedy-4"]
    ground.finish(8)
    assert "modest-0" in ground.ran


def test_a_request_that_waited_too_long_is_refused_and_not_run() -> None:
    ground = Ground(1, 10, seconds=-1)
    ground.put("one", "late")
    ground.finish(1)
    assert (ground.ran, ground.refused) == ([], ["late"])


def test_threads_that_finish_nothing_are_noticed() -> None:
    ground = Ground(1, 10)
    assert ground.threads.seconds_without_progress() == 0
    ground.put("one", "hangs")
    assert ground.started.acquire(timeout=60)
    assert ground.threads.seconds_without_progress() == 0
    ground.put("two", "waits")
    assert ground.threads.seconds_without_progress() > 0
    ground.finish(2)


def test_jobs_that_go_on_hold_a_quarter_of_the_threads() -> None:
    threads = Threads(8, 400, 60)
    go = threading.Event()
    running, done = threading.Semaphore(0), threading.Semaphore(0)

    def going_on() -> None:
        running.release()
        go.wait(60)
        done.release()

    for number in range(20):
        threads.put_again(f"lister-{number}", going_on, going_on)
    for _ in range(2):
        assert running.acquire(timeout=60)
    answered = threading.Semaphore(0)
    for number in range(50):
        threads.put(f"client-{number % 3}", lambda: answered.release(), lambda: None)
    for _ in range(50):
        assert answered.acquire(timeout=60)
    assert not running.acquire(blocking=False)
    assert threads.going_on_busy == 2
    go.set()
    for _ in range(20):
        assert done.acquire(timeout=60)


def test_a_job_that_goes_on_has_its_turn_among_requests() -> None:
    ground = Ground(1, 100)
    ground.put("first", "first-0")
    assert ground.started.acquire(timeout=60)
    order: list[str] = ground.ran
    ground.threads.put_again(
        "lister", lambda: (order.append("goes on"), ground.done.release())[0], lambda: None
    )
    for number in range(1, 4):
        ground.put("first", f"first-{number}")
    ground.finish(5)
    assert order[1] == "goes on"


def test_a_job_that_goes_on_is_refused_when_too_many_do() -> None:
    ground = Ground(1, 1)
    ground.put("one", "hangs")
    assert ground.started.acquire(timeout=60)
    refused: list[int] = []
    for number in range(3):
        ground.threads.put_again("lister", ground.done.release, lambda number=number: refused.append(number))
    assert refused == [1, 2]
    ground.finish(2)


def test_jobs_that_go_on_serve_clients_in_turn() -> None:
    ground = Ground(1, 1000)
    ground.put("first", "hangs")
    assert ground.started.acquire(timeout=60)
    for number in range(10):
        ground.threads.put_again(
            "greedy",
            lambda number=number: (ground.ran.append(f"greedy-{number}"), ground.done.release())[0],
            list,
        )
    ground.threads.put_again("modest", lambda: (ground.ran.append("modest"), ground.done.release())[0], list)
    ground.finish(12)
    assert ground.ran[:3] == ["hangs", "greedy-0", "modest"]


def test_a_client_has_a_part_of_the_jobs_that_go_on() -> None:
    ground = Ground(1, 1024)
    ground.put("first", "hangs")
    assert ground.started.acquire(timeout=60)
    refused: list[str] = []
    for _ in range(100):
        ground.threads.put_again("greedy", ground.done.release, lambda: refused.append("greedy"))
    ground.threads.put_again("modest", ground.done.release, lambda: refused.append("modest"))
    assert refused == ["greedy"] * 84
    ground.finish(18)


def test_a_job_that_fails_leaves_its_thread() -> None:
    ground = Ground(1, 10)

    def fail() -> None:
        raise OSError("no space left on device")

    ground.threads.put("one", fail, fail)
    ground.put("one", "next")
    ground.finish(1)
    assert ground.ran == ["next"]
    assert ground.threads.seconds_without_progress() == 0
