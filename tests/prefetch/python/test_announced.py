"""The announcements that reach the server while a loop runs: paths in the sampler's order, epochs,
and ranks. Also tests how misbehaving servers affect the loop."""
import itertools
import os
import socket
import threading
import unittest
from unittest import mock

from support import *  # noqa: F403
from cubeshim import _channel
from torch.utils.data import DistributedSampler


def connections_of_channels():
    return [
        channel.connection for channel in list(_channel._channels) if channel.connection is not None
    ]


class Heard(Case):
    def test_the_order_of_the_loop(self):
        server = self.serve()
        dataset = Files(3000)
        iterator, first = begun(DataLoader(dataset, batch_size=32, shuffle=True, collate_fn=as_is))
        heard = server.wait_for_order()[0].paths()
        got = list(itertools.chain(first, *iterator))
        self.assertEqual(heard, dataset.paths(got))
        self.assertEqual(len(got), 3000)

    def test_long_order_is_announced_as_the_loop_advances(self):
        server = self.serve()
        dataset = Files(150_000)
        iterator, first = begun(DataLoader(dataset, batch_size=500, shuffle=True, collate_fn=as_is))
        got = list(first)
        heard = 0

        def wait_for_the_next():
            # The loop waits for the server before the next draw, so nothing is skipped.
            server.wait(
                lambda: server.clients and len(server.clients[0].paths()) >= min(
                    len(got) + 500, 150_000), "what comes next")

        wait_for_the_next()
        for batch in iterator:
            heard = max(heard, len(server.clients[0].paths()) - len(got))
            got += batch
            wait_for_the_next()
        self.assertEqual(server.wait_for_order()[0].paths(), dataset.paths(got))
        self.assertLess(heard, 65536 + 4096)

    def test_batches_that_the_program_empties(self):
        def emptied(batch):
            return [batch.pop() for _ in range(len(batch))]

        class Emptying(Files):
            def __getitems__(self, indices):
                return emptied(indices)

        server = self.serve()
        dataset = Emptying(100)
        iterator, _ = begun(DataLoader(dataset, batch_size=4, collate_fn=emptied))
        self.assertEqual(server.wait_for_order()[0].paths(), dataset.paths(range(100)))

    def test_each_epoch_under_its_number_on_one_connection(self):
        server = self.serve()
        dataset = Files(500)
        loader = DataLoader(dataset, batch_size=10, shuffle=True, collate_fn=as_is)
        for epoch in range(3):
            iterator, first = begun(loader)
            heard = server.wait_for_order(epoch=epoch)[0].paths(epoch)
            self.assertEqual(heard, dataset.paths(itertools.chain(first, *iterator)))
            # Waits until everything is taken before the next epoch begins: otherwise that epoch
            # would use a new connection.
            channel, = [c for c in list(_channel._channels) if c.connection is not None]
            while not channel.order.is_over:
                threading.Event().wait(0.01)
        self.assertEqual(len(server.clients), 1)

    def test_persistent_workers_and_draws_ahead_of_them(self):
        server = self.serve()
        dataset = Files(200)
        loader = DataLoader(dataset, batch_size=5, shuffle=True, collate_fn=as_is, num_workers=2,
                            persistent_workers=True)
        for epoch in range(2):
            iterator, first = begun(loader)
            heard = server.wait_for_order(epoch=epoch)[-1].paths(epoch)
            self.assertEqual(heard, dataset.paths(itertools.chain(first, *iterator)))

    def test_loaders_that_are_read_in_turn(self):
        server = self.serve()
        train, test = Files(900, name="train"), Files(300, name="test")
        one, _ = begun(DataLoader(train, batch_size=9, collate_fn=as_is))
        two, _ = begun(DataLoader(test, batch_size=9, collate_fn=as_is))
        heard = [client.paths() for client in server.wait_for_order(2)]
        self.assertCountEqual(heard, [train.paths(range(900)), test.paths(range(300))])
        self.assertEqual((next(one), next(two)), (list(range(9, 18)), list(range(9, 18))))
        self.assertFalse(any(client.has_gone for client in server.clients))

    def test_a_loop_that_is_left_takes_its_order_back(self):
        server = self.serve(takes=False)
        loader = DataLoader(Files(5000), batch_size=10, shuffle=True, collate_fn=as_is)
        iterator, _ = begun(loader)
        server.wait(lambda: server.clients and server.clients[0].paths(), "paths")
        del iterator
        server.wait(lambda: server.clients[0].has_gone, "the end of the connection")
        iterator, _ = begun(loader)
        server.wait(lambda: len(server.clients) > 1 and server.clients[1].paths(1),
                    "the next epoch")

    def test_a_loader_that_is_gone_has_no_connection(self):
        server = self.serve()
        iterator, _ = begun(DataLoader(Files(50), batch_size=10, collate_fn=as_is))
        server.wait_for_order()
        del iterator
        server.wait(lambda: server.clients[0].has_gone, "the end of the connection")

    def test_ranks_of_other_launchers(self):
        for (rank,
             world), own in ((("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), {}),
                             (("PMI_RANK", "PMI_SIZE"), {}), (("SLURM_PROCID", "SLURM_NTASKS"), {}),
                             (("RANK", "WORLD_SIZE"), {"SLURM_PROCID": "1", "SLURM_NTASKS": "2"})):
            with self.subTest(rank), mock.patch.dict(os.environ, {rank: "3", world: "8"} | own):
                server = self.serve()
                iterator, _ = begun(DataLoader(Files(10), collate_fn=as_is))
                client = server.wait_for_order()[0]
                self.assertEqual((client.rank, client.world), (3, 8))
                with cubeshim.announce(["/data/a", "/data/b"]):
                    server.wait_for_order(2)
                self.assertEqual((server.clients[1].rank, server.clients[1].world), (3, 8))
                del iterator
                server.stop()

    def test_ranks(self):
        os.environ.update(RANK="3", WORLD_SIZE="8")
        server = self.serve()
        dataset = Files(800)
        sampler = DistributedSampler(dataset, 8, 3, shuffle=True)
        iterator, _ = begun(DataLoader(dataset, batch_size=10, sampler=sampler, collate_fn=as_is))
        client = server.wait_for_order()[0]
        self.assertEqual((client.rank, client.world), (3, 8))
        self.assertEqual(client.paths(), dataset.paths(list(sampler)))
        # Torch's own setting takes precedence.
        torch.distributed.init_process_group("gloo", init_method=f"file://{self.dir}/store", rank=0,
                                             world_size=1)
        self.addCleanup(torch.distributed.destroy_process_group)
        iterator, _ = begun(DataLoader(Files(10), collate_fn=as_is))
        client = server.wait_for_order(2)[1]
        self.assertEqual((client.rank, client.world), (0, 1))


class Servers(Case):
    """Tests what happens to an order if the server misbehaves. The loop continues in any case."""
    def test_next_server_continues_where_the_last_stopped(self):
        first = self.serve(takes=False)
        dataset = Files(3000)
        iterator, batch = begun(DataLoader(dataset, batch_size=10, shuffle=True, collate_fn=as_is))
        first.wait_for_order()
        first.tell(first.clients[0], 0, 1234)
        heard = first.clients[0].paths()
        # Waits until the channel has noted the report.
        channel, = [c for c in list(_channel._channels) if c.connection is not None]
        while channel.order.taken != 1234:
            threading.Event().wait(0.01)
        first.stop()
        second = self.serve()
        client = second.wait_for_order()[0]
        self.assertEqual(client.epochs[0][0], (1234, heard[1234]))
        self.assertEqual(client.paths(), heard[1234:])
        self.assertEqual(heard, dataset.paths(itertools.chain(batch, *iterator)))

    def test_a_server_that_comes_late(self):
        dataset = Files(1000)
        iterator, batch = begun(DataLoader(dataset, batch_size=10, collate_fn=as_is))
        for _ in range(9):
            batch += next(iterator)
        server = self.serve()
        client = server.wait_for_order()[0]
        # Items that the loop has passed by then are not announced.
        self.assertEqual(client.paths(), dataset.paths(range(90, 1000)))

    def test_no_server(self):
        dataset = Files(5000)
        seen = list(itertools.chain(*DataLoader(dataset, batch_size=10, collate_fn=as_is)))
        self.assertEqual(seen, list(range(5000)))

    def test_server_that_does_not_read_delays_no_loop_and_memory_is_bounded(self):
        server = self.serve(reads=False)
        dataset = Files(400_000)
        iterator, _ = begun(DataLoader(dataset, batch_size=50, collate_fn=as_is))
        most = 0
        for batch in iterator:
            order = iterator._sampler_iter.order
            most = max(most, len(order.waiting))
        self.assertLess(most, 4096 + 65536 // 50 + 100)

    def test_server_of_another_version_gets_no_paths(self):
        server = self.serve(version=2)
        iterator, _ = begun(DataLoader(Files(100), collate_fn=as_is))
        server.wait(lambda: len([c for c in server.clients if c.has_gone]) >= 2, "two attempts")
        self.assertEqual({client.rank for client in server.clients}, {None})

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to listen as another user")
    def test_server_of_another_user_gets_no_paths(self):
        self.dir.chmod(0o777)
        path = self.dir / f"cubeshim-{os.geteuid()}-test.sock"
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.setuid(65534)
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            listener.bind(str(path))
            path.chmod(0o777)
            listener.listen(8)
            for _ in range(2):
                connection, _ = listener.accept()
                try:
                    connection.send(b"\1\0\0\0CUBA\1\0\0\0" + bytes(12))
                    said = connection.recv(1000)
                except OSError:
                    said = b""
                os.write(writer, b"%d" % bool(said))
            os._exit(0)
        try:
            iterator, _ = begun(DataLoader(Files(100), collate_fn=as_is))
            self.assertEqual(os.read(reader, 1) + os.read(reader, 1), b"00")
        finally:
            os.kill(child, 9)
            os.waitpid(child, 0)
            os.close(reader)
            os.close(writer)

    def test_a_program_may_join_all_its_threads(self):
        server = self.serve()
        iterator, _ = begun(DataLoader(Files(500), collate_fn=as_is))
        server.wait_for_order()
        mine = [
            thread for thread in threading.enumerate()
            if thread not in (threading.main_thread(), server.thread)
        ]
        self.assertEqual(mine, [])
        del iterator

    def test_a_forked_child_has_neither_thread_nor_connection(self):
        server = self.serve()
        dataset = Files(500)
        iterator, _ = begun(DataLoader(dataset, collate_fn=as_is))
        server.wait_for_order()
        numbers = [connection.socket.fileno() for connection in connections_of_channels()]
        self.assertEqual(len(numbers), 1)
        child = os.fork()
        if child == 0:
            try:
                for number in numbers:
                    try:
                        os.fstat(number)
                        os._exit(2)
                    except OSError:
                        pass
                if threading.active_count() != 1 or list(_channel._channels):
                    os._exit(3)
                # The child itself can announce files.
                mine, _ = begun(DataLoader(Files(30, name="child"), collate_fn=as_is))
                next(iterator)
                server.path.stat()
                channel, = list(_channel._channels)
                while not channel.order.is_over:
                    threading.Event().wait(0.01)
                os._exit(0)
            finally:
                os._exit(4)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        server.wait(lambda: len(server.clients) == 2, "the child's client")
        self.assertEqual(
            server.wait_for_order(2)[1].paths(),
            Files(30, name="child").paths(range(30)))
        self.assertFalse(server.clients[0].has_gone)


class Plain(Case):
    """The program calls cubeshim.announce(). It has neither torch nor a sampler."""
    def test_a_sequence(self):
        server = self.serve()
        names = [f"/data/{i}" for i in range(20_000)]
        cubeshim.announce(names, epoch=4)
        client = server.wait_for_order(epoch=4)[0]
        self.assertEqual(client.paths(4), names)
        server.wait(lambda: client.has_gone, "the end of the connection")
        self.assertTrue(client.said_bye,
                        "it was not killed: what was fetched for it is still to be read")

    def test_yields_the_given_names(self):
        self.serve()
        names = [self.dir / str(i) for i in range(1000)]
        with cubeshim.announce(iter(names)) as announced:
            self.assertEqual(len(announced), 1000)
            self.assertEqual(list(announced), names)

    def test_a_shuffled_series_keeps_its_order(self):
        server = self.serve()

        class Series:
            """Finds entries by label, as pandas does."""
            rows = {label: f"/data/{label}" for label in (7, 2, 0, 9)}

            def __len__(self):
                return len(self.rows)

            def __getitem__(self, label):
                return self.rows[label]

            def __iter__(self):
                return iter(self.rows.values())

        names = list(Series.rows.values())
        self.assertEqual(list(cubeshim.announce(Series())), names)
        self.assertEqual(server.wait_for_order()[0].paths(0), names)

    def test_leaving_the_block_takes_it_back(self):
        server = self.serve(takes=False)
        with cubeshim.announce([f"/data/{i}" for i in range(100)]):
            server.wait_for_order()
            self.assertFalse(server.clients[0].has_gone)
        server.wait(lambda: server.clients[0].has_gone, "the end of the connection")
        self.assertFalse(server.clients[0].said_bye)

    def test_without_a_server(self):
        self.assertEqual(list(cubeshim.announce(["/data/a"])), ["/data/a"])


if __name__ == "__main__":
    unittest.main()
