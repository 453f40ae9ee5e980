//! Words and sentences of the haystack.

use rand::RngExt;
use rand::rngs::StdRng;

/// Things that codes belong to: single, plain words.
pub const KEYS: [&str; 40] = [
    "heron", "anchor", "lantern", "willow", "copper", "saddle", "pepper", "violin", "glacier", "bakery", "thistle",
    "harbor", "marble", "orchid", "rocket", "candle", "beaver", "compass", "meadow", "walnut", "tunnel", "pigeon",
    "garnet", "ladder", "cactus", "barrel", "falcon", "ribbon", "cellar", "magnet", "turnip", "pebble", "socket",
    "raven", "kettle", "island", "feather", "hammer", "basket", "clover",
];

const WHO: [&str; 16] = [
    "The old gardener",
    "A tired sailor",
    "The younger clerk",
    "Our neighbor",
    "The village teacher",
    "A careful painter",
    "The night guard",
    "The tall baker",
    "A quiet student",
    "The ferry pilot",
    "The first visitor",
    "An honest farmer",
    "The choir leader",
    "A patient nurse",
    "The station master",
    "The new tailor",
];

const DID: [&str; 16] = [
    "carried a heavy box",
    "wrote a short letter",
    "repaired the wooden gate",
    "waited for the morning train",
    "counted the empty chairs",
    "opened the back window",
    "cleaned the long table",
    "followed the narrow path",
    "bought some fresh bread",
    "looked for a dry coat",
    "planted a row of beans",
    "read the evening paper",
    "cooked a pot of soup",
    "painted the garden wall",
    "folded the clean sheets",
    "sharpened a small knife",
];

const WHERE: [&str; 16] = [
    "near the river",
    "behind the church",
    "in the small kitchen",
    "under the stone bridge",
    "at the edge of town",
    "beside the market",
    "on the upper floor",
    "in the quiet library",
    "across the street",
    "by the northern gate",
    "inside the barn",
    "along the canal",
    "outside the school",
    "in front of the mill",
    "next to the bakery door",
    "close to the hills",
];

const WHEN: [&str; 8] = [
    "before the rain came",
    "after a long day",
    "while the others slept",
    "without saying a word",
    "as the bells rang",
    "until the light faded",
    "just before noon",
    "for the second time",
];

/// One of the words.
fn pick<'a>(random: &mut StdRng, words: &[&'a str]) -> &'a str {
    words[random.random_range(0..words.len())]
}

/// A sentence that says nothing of use: one of 32,768.
pub fn filler(random: &mut StdRng) -> String {
    let (who, did, place, time) = (pick(random, &WHO), pick(random, &DID), pick(random, &WHERE), pick(random, &WHEN));
    format!(" {who} {did} {place} {time}.")
}

/// Five digits, the first no zero.
pub fn number(random: &mut StdRng) -> String {
    random.random_range(10_000..100_000u32).to_string()
}

/// `count` different keys, in random order.
pub fn keys(random: &mut StdRng, count: usize) -> Vec<&'static str> {
    let mut all = KEYS.to_vec();
    for at in 0..count.min(all.len()) {
        let other = random.random_range(at..all.len());
        all.swap(at, other);
    }
    all.truncate(count);
    all
}
