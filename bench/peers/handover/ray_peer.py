"""Measures Ray as its documentation uses it: the driver calls `ray.put(array)` and sends the reference to an actor, whose
`ray.get` gives a view of the store's memory. The actor is a process of its own and waits between calls."""
import sys
import tempfile

import common
import numpy
import ray


@ray.remote(num_cpus=1)
class Consumer:
    def take(self, references, seed):
        array = ray.get(references[0])
        at = common.now()
        return at, common.right(array, seed)


def main():
    sizes = common.sizes(sys.argv[1:])
    store = 3 * max(size for size, _ in sizes) + (256 << 20)
    ray.init(num_cpus=2, object_store_memory=store, include_dashboard=False, configure_logging=False, log_to_driver=False,
             _temp_dir=f"{tempfile.gettempdir()}/ray")
    consumer = Consumer.remote()
    for size, rounds in sizes:
        array = numpy.empty(size // 8, dtype=numpy.uint64)
        times, all_right = [], True
        for seed in range(rounds + common.WARM_UP):
            common.fill(array, seed)
            common.pause()
            begun = common.now()
            # Because the reference to the array is in a list, Ray does not fetch the array before it calls the actor.
            # So Ray calls the actor immediately, and the actor fetches the array with ray.get.
            at, ok = ray.get(consumer.take.remote([ray.put(array)], seed))
            times.append(at - begun)
            all_right &= ok
        common.tell(size, times, all_right)
    ray.shutdown()


if __name__ == "__main__":
    main()
