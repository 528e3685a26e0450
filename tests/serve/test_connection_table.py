"""Which connection goes when there are too many."""

import resource

from metaxc.serve import connection_table
from metaxc.serve.connection_table import ConnectionTable, connection_capacity, network_of


class FakeConnection:
    def __init__(self, table, network="10.0.0.1"):
        self.network, self.at_work, self.aborted = network, False, False
        assert table.make_room()
        table.add(self)

    def abort(self):
        self.aborted = True


def test_a_full_table_closes_the_oldest_stranger_of_the_largest_network():
    table = ConnectionTable(5)
    lone = FakeConnection(table, "10.0.0.2")
    many = [FakeConnection(table) for _ in range(4)]
    FakeConnection(table)
    assert [one.aborted for one in many] == [True, False, False, False]
    FakeConnection(table, "10.0.0.3")
    assert ([one.aborted for one in many], lone.aborted) == ([True, True, False, False], False)
    assert len(table) == len(list(table)) == 5


def test_an_admitted_connection_stays_while_there_are_strangers():
    table = ConnectionTable(3)
    admitted = FakeConnection(table)
    table.admit(admitted)
    for _ in range(20):
        FakeConnection(table)
    assert (admitted.aborted, len(table)) == (False, 3)


def test_of_admitted_connections_only_those_that_are_not_at_work_are_closed():
    table = ConnectionTable(2)
    working, idle = FakeConnection(table), FakeConnection(table)
    for one in (working, idle):
        table.admit(one)
    working.at_work = True
    newest = FakeConnection(table)
    assert (working.aborted, idle.aborted) == (False, True)
    table.admit(newest)
    newest.at_work = True
    assert not table.make_room()
    assert not newest.aborted


def test_the_table_forgets_what_has_gone():
    table = ConnectionTable(100)
    for number in range(1000):
        one = FakeConnection(table, f"10.0.{number // 250}.{number % 250}")
        if number % 2:
            table.admit(one)
        table.discard(one)
        table.discard(one)  # aborted connections are discarded twice
    assert (len(table), list(table), table._strangers) == (0, [], {})


def test_the_capacity_leaves_files_for_the_catalog(monkeypatch):
    def capacity(files, most=1000):
        monkeypatch.setattr(connection_table.resource, "getrlimit", lambda kind: (files, files))
        return connection_capacity(most)

    assert capacity(1024) == 768
    assert capacity(100) == 50
    assert capacity(65536) == capacity(resource.RLIM_INFINITY) == 1000


def test_one_client_has_one_network():
    assert network_of("192.0.2.7") == network_of("::ffff:192.0.2.7") == "192.0.2.7"
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff:1%eth0") != network_of("2001:db8:0:1::1")
