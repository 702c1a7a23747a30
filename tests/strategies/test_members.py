"""Which workers are active and how many gradients an update waits for, against a plain set."""

from hypothesis import given
from hypothesis import strategies as st

from syncline.strategies.members import Members
from syncline.strategies.protocol import WaitFor

one_step = st.tuples(st.sampled_from(["leave", "join", "want"]), st.integers(0, 5))


@given(st.integers(1, 6), st.integers(1, 9), st.booleans(), st.integers(0, 2), st.lists(one_step, max_size=30))
def test_the_count_follows_the_active_workers_and_every_change_is_reported(num_workers, wanted, clips, spare, history):
    def expected() -> int:
        return max(1, min(wanted, len(active) - spare)) if clips else wanted

    active = set(range(num_workers))
    wanted = min(wanted, max(1, num_workers - spare)) if clips else wanted  # more is refused earlier
    members = Members(num_workers, wanted, clips, spare)
    reported = members.count
    for kind, number in history:
        if kind == "leave" and number in active:
            active.remove(number)
            changes = members.leave(number)
        elif kind == "join" and number not in active:
            active.add(number)
            changes = members.join(number)
        elif kind == "want":
            wanted = max(wanted, number)
            changes = members.want(wanted, "as asked for")
        else:
            continue
        assert set(members.here) == active
        assert members.count == expected()
        assert [type(each) for each in changes] == ([WaitFor] if members.count != reported else [])
        reported = members.count
        restored = Members(0, 1, clips, spare)
        restored.load_state_dict(members.state_dict())
        assert restored.state_dict() == members.state_dict()
