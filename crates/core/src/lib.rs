//! Behaviour over the layout: heap, directory, queue. No sockets, no threads of its own.
