"""Describes in words what each id of a figure measures."""

NAMES = {
    "P1": "Port: one hand-over, spinning",
    "P2": "Port: one hand-over, blocking",
    "P3": "One object from container to container",
    "P4": "The paper's workflows, 10 MB",
    "P5": "The paper's workflows, tiny messages",
    "P6": "Heap: allocate and free",
    "P7": "Containers in a region",
    "P8": "Series: everything changes",
    "P9": "Series: a little changes",
    "P10": "Publisher's slow-down by observers",
    "P11": "Observer: attach and refresh",
    "P12": "Item: verified transfer",
    "P13": "Item: cooperative transfer",
    "P14": "Files: open, close to open, throughput",
    "P15": "Between nodes",
    "P16": "Start of daemon, session and command",
    "P17": "Memory of daemon and members",
    "P18": "Scale on one node",
    "P19": "A whole coupled job",
    "P20": "MPI in containers against bare",
    "C3": "Items: table I of the CDI paper",
    "Y5": "Files: producers and consumers in pairs",
    "Y5": "Files: a producer and its consumer, by each door",
    "T9": "Series: table of the TCASM paper",
}


def in_words(row):
    return NAMES.get(row, row)
