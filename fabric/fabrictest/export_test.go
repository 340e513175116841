package fabrictest

// RaceEnabled is for the tests of the suite.
const RaceEnabled = raceEnabled
