"""Tasks, whoever enqueues them, and the worker that runs them.

    python examples/tasks_app.py enqueue --url sqlite:///jobs.db ada grace
    python examples/tasks_app.py work --url sqlite:///jobs.db              until Ctrl-C or SIGTERM
    python examples/tasks_app.py work --url sqlite:///jobs.db --until-idle

The worker may be `alkstore worker tasks_app:tasks --url ...` as well, in this folder: `tasks` is bound to no store here, so that
it runs them from the store that it is given.
"""

from __future__ import annotations

import argparse

import alkstore

tasks = alkstore.Tasks()


@tasks.task(queue="emails", max_attempts=3, keep_result=3600)
def send(to: str, subject: str = "Welcome") -> int:
    """Pretend to send a mail, and return how long it is."""
    text = f"Dear {to}, {subject.lower()}!"
    print(f"sending: {text}", flush=True)
    return len(text)


@tasks.task(queue="accounts", pass_job=True)
def register(job: alkstore.RunningJob, name: str) -> None:
    """Welcome somebody: both mails, and the end of this job, are one commit."""
    if not name.isalpha():
        raise alkstore.Fail(f"{name!r} is no name")  # trying again would not help
    with job.transaction() as tx:  # tx.execute(...) writes to tables of the application's own in it
        send.enqueue(to=name, tx=tx)
        send.options(delay=86_400).enqueue(to=name, subject="How do you like it", tx=tx)


def main() -> None:
    """Enqueue, or work."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    enqueue = commands.add_parser("enqueue", help="register accounts")
    enqueue.add_argument("names", nargs="+", metavar="NAME")
    work = commands.add_parser("work", help="run what was enqueued")
    work.add_argument("--until-idle", action="store_true", help="end when nothing is left to do")
    for command in (enqueue, work):
        command.add_argument("--url", default="sqlite:///jobs.db", help="where the jobs are (default: %(default)s)")
    arguments = parser.parse_args()

    with alkstore.open(arguments.url) as store:
        tasks.bind(store)
        if arguments.command == "enqueue":
            for job in register.enqueue_many({"name": name} for name in arguments.names):
                print("enqueued", job.id)
        else:
            print(tasks.worker(concurrency=4).run(until_idle=arguments.until_idle))


if __name__ == "__main__":
    main()
