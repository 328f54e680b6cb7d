//! A list of requests in the order of their numbers.

/// Values that have request numbers, in the order of the numbers. A session has few requests at the same time, and the
/// next one has the greatest number. So the values are in one piece of memory, which is kept for later requests.
pub(super) struct Numbered<T>(Vec<(u64, T)>);

impl<T> Numbered<T> {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    fn place(&self, number: u64) -> Result<usize, usize> {
        self.0.binary_search_by_key(&number, |(of, _)| *of)
    }

    /// Adds a value. It replaces a value that has the same number.
    pub(super) fn insert(&mut self, number: u64, value: T) {
        match self.place(number) {
            Ok(at) => self.0[at].1 = value,
            Err(at) => self.0.insert(at, (number, value)),
        }
    }

    pub(super) fn get(&self, number: u64) -> Option<&T> {
        self.place(number).ok().map(|at| &self.0[at].1)
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        self.place(number).ok().map(|at| &mut self.0[at].1)
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<T> {
        self.place(number).ok().map(|at| self.0.remove(at).1)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The smallest number.
    pub(super) fn first(&self) -> Option<u64> {
        self.0.first().map(|(number, _)| *number)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.0.iter().map(|(number, value)| (*number, value))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut T)> {
        self.0.iter_mut().map(|(number, value)| (*number, value))
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|(_, value)| value)
    }

    /// Keeps only the values for which `keeps` gives `true`.
    pub(super) fn retain(&mut self, keeps: impl Fn(&T) -> bool) {
        self.0.retain(|(_, value)| keeps(value));
    }
}

#[cfg(test)]
mod tests {
    use super::Numbered;

    #[test]
    fn values_are_found_by_their_numbers_and_are_in_the_order_of_the_numbers() {
        let mut list = Numbered::new();
        for number in [5, 9, 7] {
            list.insert(number, number * 10);
        }
        list.insert(9, 91);
        assert_eq!(list.iter().collect::<Vec<_>>(), [(5, &50), (7, &70), (9, &91)]);
        assert_eq!((list.first(), list.get(7), list.get(8)), (Some(5), Some(&70), None));
        *list.get_mut(7).unwrap() += 1;
        assert_eq!((list.remove(5), list.remove(5)), (Some(50), None));
        assert_eq!(list.values().collect::<Vec<_>>(), [&71, &91]);
        list.retain(|value| *value > 80);
        assert_eq!((list.first(), list.is_empty()), (Some(9), false));
    }
}
