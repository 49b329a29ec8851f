"""The suite that says whether something is an engine of alkstore.

Write a ``Harness`` (``contract_tests.harness``, about fifteen lines), and run::

    pytest -p contract_tests.plugin --pyargs contract_tests.suite --harness some.module:Harness

``--harness`` may be given several times: every test runs on every engine, and its id carries the engine's name. Your own tests
may run beside it. pytest-xdist's ``-n`` works. ``ALKSTORE_TEST_SCALE`` sets how many rounds and examples are done (0.1
by default, 1 for a soak).

The tests use the protocols of ``alkstore.protocols`` and the harness, and nothing of an engine or of the front. Each cites
the clauses that it judges by ``@clause("Q-CLAIM-3")``; ``contract_tests.clauses`` has them all, with a sentence each. At the end
stands, per engine, how many clauses passed, were skipped, or failed. A test is skipped only where the store's
``capabilities`` don't declare what its clause needs, and the reason says so. A clause that an engine is known to break can be
excused, with a reason, in the harness; see ``Harness.excuses``.

For those who write tests here:

* ``fixtures.py``: ``harness``, ``place``, ``clock``, ``open_store``, ``store`` (opened with ``clock``), ``queue_names``,
  ``queue_name``, ``queue``, ``worker``, ``peek``. A second store on the same place is ``open_store()``, and the test then says
  ``@clause(..., needs="processes")``.
* ``steps.py``, ``payloads.py``, ``together.py``, ``children.py``: steps that many tests take, threads and child processes.
* ``travel.py``: the clock. ``scale.py``: ``rounds(n)``, and ``@examples(n)`` for Hypothesis.
* A child process gets ``harness.reference`` and ``place``, both strings, and does
  ``contract_tests.harness.load(reference).open(place)``.
* Barriers and events, never a sleep; ``assert expected == actual``; a docstring that states the behaviour in a sentence.
"""
