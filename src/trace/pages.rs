//! Live pages by cache group and index, forty bytes each: a cache of ten million pages can be replayed.

use crate::engine::{Formats, PageFacts};
use std::collections::BTreeMap;
use std::num::NonZeroU16;

/// Pages of a block. Indices are given out from the lowest on, so that blocks are full but for the last ones.
const BLOCK: u32 = 64;

/// Pairs of formats that a table can hold.
const MOST_FORMATS: usize = u16::MAX as usize - 1;

/// How a page is stored: [`PageFacts`] without the words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredPage {
    /// Model layer.
    pub layer: u32,
    /// KV head.
    pub kv_head: u32,
    /// Its number in every sequence that holds it.
    pub number: u32,
    /// Slots of the K and the V side.
    pub slots: [u32; 2],
    /// Grows with every change of format or place.
    pub generation: u32,
    /// Bytes of both sides' slots.
    pub bytes: u64,
    /// As [`crate::page::flags`].
    pub flags: u16,
    /// The group of segments that both slots are in.
    pub segment_group: u16,
    /// One more than its place in the table's list of formats, so that an empty place takes no room of its own.
    pair: NonZeroU16,
}

impl StoredPage {
    /// Its place in [`PageTable::formats`].
    pub fn formats(&self) -> usize {
        usize::from(self.pair.get()) - 1
    }
}

type Block = Box<[Option<StoredPage>; BLOCK as usize]>;

/// Live pages.
#[derive(Clone, Debug, Default)]
pub struct PageTable {
    blocks: BTreeMap<(usize, u32), Block>,
    formats: Vec<Formats>,
    places: BTreeMap<Formats, NonZeroU16>,
    /// Pages by place in the list of formats.
    of_formats: Vec<usize>,
    /// Pages by cache group.
    counts: BTreeMap<usize, usize>,
    bytes: u128,
}

impl PageTable {
    /// Pages in it.
    pub fn len(&self) -> usize {
        self.counts.values().sum()
    }

    /// Pages of one cache group.
    pub fn count(&self, group: usize) -> usize {
        self.counts.get(&group).copied().unwrap_or(0)
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the slots of all pages.
    pub fn bytes(&self) -> u64 {
        u64::try_from(self.bytes).unwrap_or(u64::MAX)
    }

    /// Formats of K and V that pages have or had, in the order in which they came.
    pub fn formats(&self) -> &[Formats] {
        &self.formats
    }

    /// Pages in the formats at a place of that list.
    pub fn count_of(&self, formats: usize) -> usize {
        self.of_formats.get(formats).copied().unwrap_or(0)
    }

    /// The page with index `page` of a cache group.
    pub fn stored(&self, group: usize, page: u32) -> Option<&StoredPage> {
        self.blocks.get(&(group, page / BLOCK))?[(page % BLOCK) as usize].as_ref()
    }

    /// The same with its words.
    pub fn get(&self, group: usize, page: u32) -> Option<PageFacts> {
        self.stored(group, page).map(|stored| self.facts(group, page, stored))
    }

    /// All pages, by cache group, then by index.
    pub fn iter(&self) -> impl Iterator<Item = PageFacts> {
        self.blocks.iter().flat_map(move |(&(group, block), pages)| {
            let at = move |place: usize| block * BLOCK + place as u32;
            let live = pages.iter().enumerate().filter_map(|(place, page)| page.as_ref().map(|page| (place, page)));
            live.map(move |(place, page)| self.facts(group, at(place), page))
        })
    }

    fn facts(&self, group: usize, page: u32, stored: &StoredPage) -> PageFacts {
        let StoredPage { layer, kv_head, number, slots, generation, bytes, flags, segment_group, .. } = *stored;
        let formats = self.formats[stored.formats()].clone();
        PageFacts { group, page, layer, kv_head, number, formats, slots, segment_group, generation, flags, bytes }
    }

    /// Puts a page in its place; the one that was there, if any.
    ///
    /// # Errors
    /// A page of yet another pair of formats when there are 65 534 already; it is not taken in.
    pub(super) fn insert(&mut self, page: &PageFacts) -> Result<Option<StoredPage>, String> {
        let pair = match self.places.get(&page.formats) {
            Some(pair) => *pair,
            None => {
                let next = u16::try_from(self.formats.len() + 1).ok().filter(|_| self.formats.len() < MOST_FORMATS);
                let next = next.and_then(NonZeroU16::new);
                let next = next.ok_or_else(|| format!("more than {MOST_FORMATS} pairs of formats"))?;
                self.formats.push(page.formats.clone());
                self.places.insert(page.formats.clone(), next);
                self.of_formats.push(0);
                next
            }
        };
        let &PageFacts { layer, kv_head, number, slots, generation, bytes, flags, segment_group, .. } = page;
        let stored = StoredPage { layer, kv_head, number, slots, generation, bytes, flags, segment_group, pair };
        let block = self.blocks.entry((page.group, page.page / BLOCK));
        let block = block.or_insert_with(|| Box::new([None; BLOCK as usize]));
        let before = block[(page.page % BLOCK) as usize].replace(stored);
        self.bytes += u128::from(bytes);
        self.of_formats[stored.formats()] += 1;
        match &before {
            Some(before) => {
                self.bytes -= u128::from(before.bytes);
                self.of_formats[before.formats()] -= 1;
            }
            None => *self.counts.entry(page.group).or_default() += 1,
        }
        Ok(before)
    }

    /// Takes a page out.
    pub(super) fn remove(&mut self, group: usize, page: u32) -> Option<StoredPage> {
        let key = (group, page / BLOCK);
        let block = self.blocks.get_mut(&key)?;
        let gone = block[(page % BLOCK) as usize].take()?;
        if block.iter().all(Option::is_none) {
            self.blocks.remove(&key);
        }
        if let Some(count) = self.counts.get_mut(&group) {
            *count -= 1;
        }
        self.bytes -= u128::from(gone.bytes);
        self.of_formats[gone.formats()] -= 1;
        Some(gone)
    }
}

/// Equal pages: the order in which formats came does not count.
impl PartialEq for PageTable {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.bytes == other.bytes && self.iter().eq(other.iter())
    }
}

impl Eq for PageTable {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn page(group: usize, page: u32, k: &str, bytes: u64) -> PageFacts {
        PageFacts {
            group,
            page,
            layer: page % 7,
            kv_head: page % 3,
            number: page / 21,
            formats: (k.into(), "tq3".into()),
            slots: [page, page + 1],
            segment_group: (page % 5) as u16,
            generation: page + 9,
            flags: 3,
            bytes,
        }
    }

    proptest! {
        #[test]
        fn a_table_is_a_map(acts in prop::collection::vec((0usize..2, 0u32..400, 0usize..3, any::<u64>(), any::<bool>()), 0..300)) {
            let (mut table, mut map) = (PageTable::default(), BTreeMap::new());
            for (group, index, k, bytes, insert) in acts {
                if insert {
                    let page = page(group, index, ["f16", "fp8", "tq4"][k], bytes);
                    let before = table.insert(&page).unwrap();
                    let gone = map.insert((group, index), page);
                    prop_assert_eq!(before.map(|b| b.bytes), gone.map(|g| g.bytes));
                } else {
                    let gone = table.remove(group, index);
                    prop_assert_eq!(gone.map(|g| g.bytes), map.remove(&(group, index)).map(|g| g.bytes));
                }
                let sum: u128 = map.values().map(|p| u128::from(p.bytes)).sum();
                prop_assert_eq!(table.bytes(), u64::try_from(sum).unwrap_or(u64::MAX));
                prop_assert_eq!(table.get(group, index), map.get(&(group, index)).cloned());
            }
            prop_assert_eq!(table.len(), map.len());
            let first = map.keys().filter(|key| key.0 == 0).count();
            prop_assert_eq!((table.count(0), table.count(1)), (first, map.len() - first));
            for (at, formats) in table.formats().iter().enumerate() {
                prop_assert_eq!(table.count_of(at), map.values().filter(|page| page.formats == *formats).count());
            }
            prop_assert_eq!(table.count_of(table.formats().len()), 0);
            prop_assert_eq!(table.iter().collect::<Vec<_>>(), map.into_values().collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_page_takes_forty_bytes() {
        assert!(size_of::<Option<StoredPage>>() <= 40, "{}", size_of::<Option<StoredPage>>());
    }

    #[test]
    fn too_many_formats_are_refused() {
        let mut table = PageTable::default();
        for name in 0..MOST_FORMATS {
            table.insert(&page(0, 0, &name.to_string(), 1)).unwrap();
        }
        assert!(table.insert(&page(0, 0, "one more", 1)).unwrap_err().contains("65534"));
        assert_eq!((table.len(), table.bytes()), (1, 1));
    }
}
