"""What processes of a run send each other, and how: addresses, sockets, the handshake, frames, clocks, messages.

All other folders of `live` import it, and so do the runners; control_messages.py has their messages to the processes.
"""
