//! Computes the positions of nodes and edges: layers by the longest path from a source, and few crossings by the mean
//! position of the neighbours (Sugiyama, Tagawa and Toda 1981, steps 1 to 3). An edge that spans several layers bends
//! in each layer between its ends, at a position that no node takes.

use super::{Direction, Graph};

/// The most characters of a name in the picture; a longer name is shortened.
pub const NAME_MAX: usize = 28;
const HEIGHT: f64 = 46.0;
const MARGIN: f64 = 12.0;
const SWEEPS: usize = 8;

/// The position and size of a node: the point in its middle, its width and its height.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Placed {
    /// The distance of the node's middle from the left border of the picture.
    pub x: f64,
    /// The distance of the node's middle from the top of the picture.
    pub y: f64,
    /// The width of the node.
    pub width: f64,
    /// The height of the node.
    pub height: f64,
}

/// A graph's nodes and edges with their positions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layout {
    /// The width of the whole picture.
    pub width: f64,
    /// The height of the whole picture.
    pub height: f64,
    /// The positions of the nodes, in the graph's order.
    pub nodes: Vec<Placed>,
    /// For each edge, the points through which it goes, from the border of one node to the border of another.
    pub edges: Vec<Vec<(f64, f64)>>,
    /// The direction in which the layers follow each other.
    pub direction: Direction,
}

/// Computes positions for all nodes and edges. The same graph always gives the same positions.
pub fn lay_out(graph: &Graph, direction: Direction) -> Layout {
    let count = graph.nodes.len();
    let forward = forward_edges(graph);
    let mut layer = layers(count, &forward);
    let mut size: Vec<(f64, f64)> = graph.nodes.iter().map(|n| (width(&n.name, &n.detail), HEIGHT)).collect();
    // An edge that spans several layers bends at invisible nodes without size, one in each layer between its ends.
    let mut ways: Vec<Vec<usize>> = Vec::new();
    for (from, to) in &forward {
        let mut way = vec![*from];
        for between in layer[*from] + 1..layer[*to] {
            layer.push(between);
            size.push((if direction == Direction::Right { 40.0 } else { 14.0 }, 14.0));
            way.push(layer.len() - 1);
        }
        way.push(*to);
        ways.push(way);
    }
    let order = order(&layer, &ways);
    let (places, width, height) = places(&order, &size, direction);
    let edges = graph.edges.iter().zip(&forward).zip(&ways).map(|((edge, (from, _)), way)| {
        let mut points: Vec<(f64, f64)> = way.iter().map(|n| (places[*n].x, places[*n].y)).collect();
        let (first, last) = (places[way[0]], places[way[way.len() - 1]]);
        let end = points.len() - 1;
        match direction {
            Direction::Right => {
                points[0].0 += first.width / 2.0;
                points[end].0 -= last.width / 2.0;
            }
            Direction::Down => {
                points[0].1 += first.height / 2.0;
                points[end].1 -= last.height / 2.0;
            }
        }
        // An edge that was reversed to break a cycle is drawn in its original direction.
        if *from != edge.from {
            points.reverse();
        }
        points
    });
    Layout { width, height, edges: edges.collect(), nodes: places[..count].to_vec(), direction }
}

/// Estimates the width of a node's text in the fonts of the picture.
fn width(name: &str, detail: &str) -> f64 {
    let (name, detail) = (name.chars().count().min(NAME_MAX) as f64, detail.chars().count() as f64);
    (name * 8.2).max(detail * 6.2).max(70.0) + 26.0
}

/// Gives each edge as its two nodes, in such directions that no cycle is left: an edge that closes a cycle is reversed.
/// So each edge goes from a lower layer to a higher layer.
fn forward_edges(graph: &Graph) -> Vec<(usize, usize)> {
    let mut state = vec![0u8; graph.nodes.len()];
    let mut turned = vec![false; graph.edges.len()];
    for start in 0..graph.nodes.len() {
        // The search goes depth first without recursion. Each entry of `path` is a node and the number of its next
        // edge.
        let mut path = vec![(start, 0)];
        while let Some((node, next)) = path.pop() {
            if next == 0 {
                if state[node] != 0 {
                    continue;
                }
                state[node] = 1;
            }
            let out = graph.edges.iter().enumerate().filter(|(_, e)| e.from == node).nth(next);
            let Some((number, edge)) = out else {
                state[node] = 2;
                continue;
            };
            path.push((node, next + 1));
            match state[edge.to] {
                0 => path.push((edge.to, 0)),
                1 => turned[number] = true,
                _ => {}
            }
        }
    }
    let turn = |(e, turned): (&super::Edge, &bool)| if *turned { (e.to, e.from) } else { (e.from, e.to) };
    graph.edges.iter().zip(&turned).map(turn).collect()
}

/// Computes the layer of each node: one more than the highest layer of its predecessors. The edges have no cycles, so
/// the loop ends after at most as many rounds as there are nodes.
fn layers(count: usize, edges: &[(usize, usize)]) -> Vec<usize> {
    let mut layer = vec![0; count];
    for _ in 0..count {
        let mut changed = false;
        for (from, to) in edges.iter().filter(|(from, to)| from != to) {
            if layer[*to] <= layer[*from] {
                layer[*to] = layer[*from] + 1;
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
    // A node without predecessors moves as near as possible to the nodes that follow it, so that edges are short.
    for node in 0..count {
        let is_source = !edges.iter().any(|(_, to)| *to == node);
        if let (true, Some(next)) =
            (is_source, edges.iter().filter(|(f, _)| *f == node).map(|(_, to)| layer[*to]).min())
        {
            layer[node] = usize::saturating_sub(next, 1);
        }
    }
    layer
}

/// Orders the nodes of each layer so that few edges cross.
fn order(layer: &[usize], ways: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut order: Vec<Vec<usize>> = vec![Vec::new(); layer.iter().max().map_or(0, |last| last + 1)];
    layer.iter().enumerate().for_each(|(node, layer)| order[*layer].push(node));
    let steps: Vec<(usize, usize)> = ways.iter().flat_map(|w| w.windows(2).map(|s| (s[0], s[1]))).collect();
    for sweep in 0..SWEEPS {
        let mut place = vec![0.0; layer.len()];
        for row in &order {
            row.iter().enumerate().for_each(|(at, node)| place[*node] = at as f64 - (row.len() - 1) as f64 / 2.0);
        }
        let down = sweep % 2 == 0;
        let rows: Vec<usize> =
            if down { (1..order.len()).collect() } else { (0..order.len().saturating_sub(1)).rev().collect() };
        for row in rows {
            let key = |node: &usize| {
                let neighbours = steps.iter().filter_map(|(a, b)| match down {
                    true => (b == node).then(|| place[*a]),
                    false => (a == node).then(|| place[*b]),
                });
                let (sum, n) = neighbours.fold((0.0, 0.0), |(sum, n), p| (sum + p, n + 1.0));
                if n == 0.0 { place[*node] } else { sum / n }
            };
            let mut keyed: Vec<(f64, usize)> = order[row].iter().map(|n| (key(n), *n)).collect();
            keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
            order[row] = keyed.into_iter().map(|(_, n)| n).collect();
            let row = &order[row];
            row.iter().enumerate().for_each(|(at, node)| place[*node] = at as f64 - (row.len() - 1) as f64 / 2.0);
        }
    }
    order
}

/// Computes the middles and sizes of the nodes, and the size of the whole picture.
fn places(order: &[Vec<usize>], size: &[(f64, f64)], direction: Direction) -> (Vec<Placed>, f64, f64) {
    let (between_layers, between_nodes) = if direction == Direction::Right { (56.0, 20.0) } else { (44.0, 16.0) };
    let along = |n: &usize| if direction == Direction::Right { size[*n].0 } else { size[*n].1 };
    let across = |n: &usize| if direction == Direction::Right { size[*n].1 } else { size[*n].0 };
    let spread =
        |row: &Vec<usize>| row.iter().map(across).sum::<f64>() + between_nodes * row.len().saturating_sub(1) as f64;
    let widest = order.iter().map(spread).fold(0.0, f64::max);
    let mut places = vec![Placed::default(); size.len()];
    let mut at = MARGIN;
    for row in order {
        let depth = row.iter().map(along).fold(0.0, f64::max);
        let mut side = MARGIN + (widest - spread(row)) / 2.0;
        for node in row {
            let (a, s) = (at + depth / 2.0, side + across(node) / 2.0);
            let (x, y) = if direction == Direction::Right { (a, s) } else { (s, a) };
            places[*node] = Placed { x, y, width: size[*node].0, height: size[*node].1 };
            side += across(node) + between_nodes;
        }
        at += depth + between_layers;
    }
    let length = (at - between_layers + MARGIN).max(2.0 * MARGIN);
    let breadth = widest + 2.0 * MARGIN;
    if direction == Direction::Right { (places, length, breadth) } else { (places, breadth, length) }
}

#[cfg(test)]
mod tests {
    use super::super::{Flow, NodeKind};
    use super::*;

    fn graph(nodes: usize, edges: &[(usize, usize)]) -> Graph {
        let mut graph = Graph::default();
        for n in 0..nodes {
            graph.node(NodeKind::Task, &format!("task-{n}"), "task");
        }
        edges.iter().for_each(|(a, b)| graph.edge(*a, *b, Flow::Forth));
        graph
    }

    fn overlap(a: &Placed, b: &Placed) -> bool {
        (a.x - b.x).abs() < (a.width + b.width) / 2.0 && (a.y - b.y).abs() < (a.height + b.height) / 2.0
    }

    fn assert_sound(graph: &Graph) {
        for direction in [Direction::Right, Direction::Down] {
            let layout = lay_out(graph, direction);
            assert_eq!((layout.nodes.len(), layout.edges.len()), (graph.nodes.len(), graph.edges.len()));
            for (n, a) in layout.nodes.iter().enumerate() {
                let inside = a.x - a.width / 2.0 >= 0.0 && a.x + a.width / 2.0 <= layout.width;
                assert!(inside && a.y - a.height / 2.0 >= 0.0 && a.y + a.height / 2.0 <= layout.height, "{a:?}");
                assert!(layout.nodes[n + 1..].iter().all(|b| !overlap(a, b)), "{direction:?} {:?}", layout.nodes);
            }
            assert_eq!(layout, lay_out(graph, direction));
        }
    }

    #[test]
    fn a_pipeline_lies_on_one_line_from_left_to_right() {
        let graph = graph(4, &[(0, 1), (1, 2), (2, 3)]);
        assert_sound(&graph);
        let layout = lay_out(&graph, Direction::Right);
        assert!(layout.nodes.windows(2).all(|w| w[0].x < w[1].x && w[0].y == w[1].y), "{:?}", layout.nodes);
        let down = lay_out(&graph, Direction::Down);
        assert!(down.nodes.windows(2).all(|w| w[0].y < w[1].y && w[0].x == w[1].x), "{:?}", down.nodes);
    }

    #[test]
    fn no_two_nodes_overlap_whatever_the_edges_are() {
        assert_sound(&graph(0, &[]));
        assert_sound(&graph(1, &[(0, 0)]));
        assert_sound(&graph(3, &[(0, 1), (1, 2), (2, 0)]));
        let mut random = crossdock_os::testing::Random(12345);
        for nodes in 1..14 {
            let mut edges = Vec::new();
            for _ in 0..2 * nodes {
                edges.push((random.below(nodes), random.below(nodes)));
            }
            assert_sound(&graph(nodes, &edges));
        }
    }

    #[test]
    fn neighbours_are_ordered_so_that_edges_do_not_cross() {
        let layout = lay_out(&graph(4, &[(0, 3), (1, 2)]), Direction::Right);
        let y = |n: usize| layout.nodes[n].y;
        assert_eq!(y(0) < y(1), y(3) < y(2), "{:?}", layout.nodes);
    }
}
