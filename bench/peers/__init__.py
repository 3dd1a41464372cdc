"""The drivers of the queues that `bench/queue.py` measures: one short program for each, each in a process of its own."""
