//! Every raw system call of crossdock, behind safe functions.
