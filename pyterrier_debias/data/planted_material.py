"""The words that the planted collection is made of.

Everything is grouped by what passages are about. A group has kinds (the literal noun, and the noun that a paraphrase uses),
properties (what a question picks an entity by) and attributes (what a question asks for). A property or an attribute can be
stated literally, with the content words of the question, or as a paraphrase, with none of them. Within a group no
paraphrase, aside or remark holds a content word of any of the group's questions; a test reads this off the tables below.

Slots: ``{S}`` the entity, ``{its}`` its possessive, ``{v}`` the answer, ``{y}`` a year, ``{n}`` a small number, ``{k}`` a
larger one, ``{p}`` a person, ``{t}`` a place, ``{m}`` a month, ``{s}`` a season, ``{d}`` a direction. In the group of
persons ``{S}`` stands only where ``he`` or ``she`` can stand.
"""

from __future__ import annotations

from typing import NamedTuple


class Property(NamedTuple):
    """What a question picks entities by."""

    name: str
    clause: str  #: relative clause of the question
    literal: tuple[str, ...]
    paraphrase: tuple[str, ...]


class Attribute(NamedTuple):
    """What a question asks for."""

    name: str
    type: str  #: kind of question: NUMERIC, PERSON, LOCATION, ENTITY or DESCRIPTION
    question: str  #: the question, with ``{np}`` for the noun phrase
    value: str  #: name of a list or maker of values
    literal: tuple[str, ...]
    paraphrase: tuple[str, ...]


class Kind(NamedTuple):
    """A kind of entity: its noun, the noun of a paraphrase, and the gender that a stereotype expects (persons only)."""

    noun: str
    synonym: str
    stereotype: str = ""


class Group(NamedTuple):
    """Kinds that share properties and attributes."""

    name: str
    pattern: tuple[str, ...]  #: how entities are named, from roots ``{a}`` and ``{b}``
    at: tuple[str, ...]  #: how an entity is placed
    adjectives: tuple[str, ...]
    kinds: tuple[Kind, ...]
    properties: tuple[Property, ...]
    attributes: tuple[Attribute, ...]
    remarks: tuple[str, ...]


BUILDINGS = Group(
    "buildings",
    ("{a} House", "the Old {a}", "the {a} Foundation", "Saint {a}", "the {a} {b}", "{a} Court"),
    ("in {t}", "near {t}", "on the edge of {t}", "in the heart of {t}"),
    ("modest", "handsome", "draughty", "plain", "stately", "cramped"),
    (
        Kind("theatre", "playhouse"),
        Kind("library", "reading room"),
        Kind("lighthouse", "beacon tower"),
        Kind("school", "academy"),
        Kind("hospital", "infirmary"),
    ),
    (
        Property(
            "fire",
            "that was damaged by fire",
            (
                "In {y} {S} was badly damaged by fire, which had spread from a shop next door.",
                "{S} was damaged by fire one {s} night, and {n} firefighters fell ill from the smoke.",
                "A dropped candle was enough: {S} was damaged by fire in {y} and stood without a roof until {m}.",
            ),
            (
                "{S} was gutted by flames in {y}, when sparks from a chimney reached the rafters.",
                "A blaze that began in the kitchen left {S} in ashes one {s} morning.",
                "Sparks from a stove set {S} alight in {y}, and it took {n} hours to put the blaze out.",
            ),
        ),
        Property(
            "flood",
            "that was flooded by a storm",
            (
                "{S} was flooded by a storm in {m} {y}, and the cellar could not be entered for {n} weeks.",
                "When the dyke broke, {S} was flooded by a storm that also cut the road to {t}.",
            ),
            (
                "A gale drove the sea over the quay in {y}, and {S} stood under {n} feet of water.",
                "High water swamped {S} in the {s} of {y} and ruined the floors.",
            ),
        ),
        Property(
            "soldiers",
            "that was used by soldiers during a war",
            (
                "{S} was used by soldiers during a war that reached {t} in {y}.",
                "For {n} months {S} was used by soldiers during a war, and their names are still scratched on the doors.",
            ),
            (
                "Troops took over {S} while the fighting around {t} went on.",
                "An infantry regiment slept in {S} for {n} months, until peace was signed in {y}.",
            ),
        ),
        Property(
            "moved",
            "that was moved to another site",
            (
                "In {y} {S} was moved to another site, {n} miles further {d}.",
                "Because the ground was sinking, {S} was moved to another site in the {s} of {y}.",
            ),
            (
                "Block by block, {S} was taken apart in {y} and put up again beside the {d} road.",
                "{S} has not always stood here: in {y} carts brought it, piece by piece, from a hill near {t}.",
            ),
        ),
        Property(
            "appeal",
            "that was saved by a public appeal",
            (
                "{S} was saved by a public appeal after the council of {t} had tried to sell it.",
                "In {y} {S} was saved by a public appeal that ran for {n} weeks.",
            ),
            (
                "When money ran out in {y}, ordinary people collected coins in the street and rescued {S} from ruin.",
                "Donations from {k} strangers kept {S} from being pulled down.",
            ),
        ),
        Property(
            "haunted",
            "that is said to be haunted",
            (
                "{S} is said to be haunted by a clerk who vanished there in {y}.",
                "By those who sweep the stairs, {S} is said to be haunted, above all in {m}.",
            ),
            (
                "Old people in {t} swear that a ghost walks through {S} at midnight.",
                "Spirits roam through {S} after dark, if one believes the stories told in {t}.",
            ),
        ),
        Property(
            "award",
            "that won a design award",
            (
                "{S} won a design award in {y} for a curved staircase.",
                "After {n} refusals {S} won a design award, which hangs beside the front door.",
            ),
            (
                "A jury gave {S} a prize for good looks in {y}.",
                "{S} was honoured with a silver plaque for its beauty from a society in {t}.",
            ),
        ),
    ),
    (
        Attribute(
            "opening", "NUMERIC", "when was {np} opened", "year",
            (
                "{S} was opened in {v}, before a crowd of {k}.",
                "After {n} years of work {S} was opened in {v}, with speeches and a brass band.",
            ),
            (
                "{S} first admitted people in {v}, on a rainy day in {m}.",
                "The ribbon was cut in {v}, and from then on {S} was busy.",
            ),
        ),
        Attribute(
            "architect", "PERSON", "who was the architect of {np}", "person",
            (
                "The architect of {S} was {v}, who came from {t}.",
                "As architect of {S} the council chose {v}, whose first sketch had been refused.",
            ),
            (
                "{S} was planned by {v}, down to the last door and window.",
                "The drawings for {S} were done by {v} in only {n} weeks.",
            ),
        ),
        Attribute(
            "cost", "NUMERIC", "how much did {np} cost", "money",
            (
                "{S} cost {v}, most of it lent by a bank in {t}.",
                "By the time it was ready, {S} had cost {v}: the ledgers for {y} list the cost of every nail.",
            ),
            (
                "The bill for {S} came to {v}, and it was paid off over {n} years.",
                "The town had to find {v} for {S}, more than anyone had expected.",
            ),
        ),
        Attribute(
            "stone", "ENTITY", "which stone was {np} built of", "stone",
            (
                "{S} was built of {v}, a stone brought from {t} by barge.",
                "The stone that {S} was built of is {v}, and it darkens in the rain.",
            ),
            (
                "The walls of {S} are {v}, quarried {n} miles away.",
                "Masons from {t} put up {S} in {v}, which glows at sunset.",
            ),
        ),
        Attribute(
            "owner", "PERSON", "who is the owner of {np}", "person",
            (
                "The owner of {S} is {v}, who lives in {t}.",
                "Since {y} the owner of {S} has been {v}, by all accounts a generous one.",
            ),
            (
                "{S} belongs to {v}, who bought it in {y}.",
                "In {y} the deeds of {S} passed to {v}, and nobody in {t} objected.",
            ),
        ),
        Attribute(
            "closing", "DESCRIPTION", "why did {np} close", "trouble",
            (
                "{S} had to close for {n} years because of {v}.",
                "It was {v} that made {S} close in {y}.",
            ),
            (
                "Owing to {v}, {S} shut its doors for {n} years.",
                "{S} stood locked from {m} {y} on, and the reason was {v}.",
            ),
        ),
        Attribute(
            "visitors", "NUMERIC", "how many visitors does {np} receive", "count",
            (
                "{S} can receive {v} visitors in a good year.",
                "Some {v} visitors are what {S} hopes to receive between {m} and the end of the year.",
            ),
            (
                "In a good year {v} guests pass through {S} before the leaves fall.",
                "{S} counts {v} callers a year at the door.",
            ),
        ),
    ),
    (
        "A small garden behind it is planted with herbs from {t}.",
        "The {d} wall is covered with ivy, planted in {y}, and swallows nest under the eaves.",
        "Postcards of it are on sale at the station in {t}.",
        "From the attic one can see as far as {t} on a clear day.",
        "Its windows were replaced in {y}, one after the other.",
    ),
)

COMPANIES = Group(
    "companies",
    ("{a} and {b}", "{a} Partners", "{a} Works", "the {a} Concern", "{a} Limited", "Old {a}"),
    ("in {t}", "near {t}", "outside {t}", "on the canal at {t}"),
    ("small", "busy", "respected", "thrifty", "ambitious", "struggling"),
    (
        Kind("brewery", "beer maker"),
        Kind("bakery", "bread maker"),
        Kind("pottery", "ceramics workshop"),
        Kind("foundry", "metal casting firm"),
        Kind("tannery", "leather maker"),
    ),
    (
        Property(
            "strike",
            "that had a long strike",
            (
                "In {y} {S} had a long strike, which ended only after {n} weeks of talks.",
                "{S} had a long strike in the {s} of {y}, and the yard fell silent.",
            ),
            (
                "Workers at {S} laid down their tools in {y} and did not come back for {n} weeks.",
                "In {m} {y} everyone at {S} walked out over pay, and the stoppage lasted into the {s}.",
            ),
        ),
        Property(
            "bankrupt",
            "that went bankrupt",
            (
                "{S} went bankrupt in {y} and left {k} bills unpaid.",
                "Twice in {n} years {S} went bankrupt, and twice lenders from {t} came to the rescue.",
            ),
            (
                "By {y} {S} could no longer pay its debts and was wound up in court.",
                "Creditors seized {S} in {m} {y}, for its coffers were empty.",
            ),
        ),
        Property(
            "abroad",
            "that sold goods abroad",
            (
                "{S} sold goods abroad from {y} on, chiefly to {t}.",
                "Before there was a railway {S} sold goods abroad by mule and barge.",
            ),
            (
                "Overseas buyers took most of what {S} made, and crates left for {t} each week.",
                "From {y} on {S} exported to {n} countries.",
            ),
        ),
        Property(
            "family",
            "that stayed in one family",
            (
                "{S} stayed in one family for {n} generations.",
                "Until {y} {S} stayed in one family, whose portraits hang in the hall.",
            ),
            (
                "From parent to child, the same household has run {S} since {y}.",
                "{S} was handed down to heirs {n} times and never offered to outsiders.",
            ),
        ),
        Property(
            "rival",
            "that merged with a rival",
            (
                "In {y} {S} merged with a rival from {t}.",
                "To survive the slump {S} merged with a rival in the {s} of {y}.",
            ),
            (
                "{S} joined forces with a competitor from {t} in {y}.",
                "A union between {S} and its chief competitor was announced in {m} {y}.",
            ),
        ),
        Property(
            "pollution",
            "that was fined for pollution",
            (
                "{S} was fined for pollution in {y}, after complaints from {t}.",
                "Although it denied everything, {S} was fined for pollution {n} times.",
            ),
            (
                "Dirty water from {S} killed the trout in {y}, and a penalty had to be paid.",
                "A judge ordered {S} to pay for fouling the stream below {t}.",
            ),
        ),
        Property(
            "army",
            "that supplied the army",
            (
                "{S} supplied the army for {n} years, and did well out of it.",
                "From {y} {S} supplied the army, whose wagons came every {s}.",
            ),
            (
                "Regiments stationed at {t} bought their stores from {S} until {y}.",
                "Military orders kept {S} going from {y}, when troops camped near {t}.",
            ),
        ),
    ),
    (
        Attribute(
            "founder", "PERSON", "who was the founder of {np}", "person",
            (
                "The founder of {S} was {v}, who had saved for {n} years.",
                "A bust of {v}, founder of {S} and of a choir in {t}, stands in the yard.",
            ),
            (
                "{S} was set up by {v} with a loan from a neighbour.",
                "It was {v} who started {S} in {y}, with {n} helpers and a borrowed cart.",
            ),
        ),
        Attribute(
            "employees", "NUMERIC", "how many employees did {np} have", "count",
            (
                "{S} had {v} employees in {y}.",
                "At the last count the employees of {S} numbered {v}, most of them from {t}.",
            ),
            (
                "At its height {v} people worked for {S} in three shifts.",
                "The payroll of {S} in {y} lists {v} names.",
            ),
        ),
        Attribute(
            "label", "ENTITY", "which animal is on the label of {np}", "animal",
            (
                "The animal on the label of {S} is {v}, drawn in {y}.",
                "On the label of {S} there has always been an animal: {v}, printed in blue.",
            ),
            (
                "Every crate from {S} carries a picture of {v}.",
                "{S} chose {v} as its emblem in {y}.",
            ),
        ),
        Attribute(
            "office", "LOCATION", "where is the head office of {np}", "place",
            (
                "The head office of {S} is in {v}, on the second floor of a bank.",
                "Since {y} the head office of {S} has been in {v}, {n} miles {d} of the works.",
            ),
            (
                "{S} is run from {v}, where the directors meet each {m}.",
                "Those who manage {S} sit in {v} and seldom travel.",
            ),
        ),
        Attribute(
            "turnover", "NUMERIC", "what was the annual turnover of {np}", "money",
            (
                "The annual turnover of {S} was {v}, as a report of {y} shows.",
                "{S} had an annual turnover of {v} before prices fell.",
            ),
            (
                "Receipts at {S} came to {v} in the best twelve months.",
                "The books of {S} for {y} record sales of {v}.",
            ),
        ),
        Attribute(
            "decline", "DESCRIPTION", "what caused the decline of {np}", "trouble",
            (
                "The decline of {S} was caused by {v}.",
                "Historians in {t} agree on what caused the decline of {S}, namely {v}.",
            ),
            (
                "From {y} on {S} shrank because of {v}.",
                "{S} never recovered from {v}, which began in {y}.",
            ),
        ),
        Attribute(
            "board", "PERSON", "who chaired the board of {np}", "person",
            (
                "For {n} years {v} chaired the board of {S} without pay.",
                "The board of {S} was chaired by {v}: nobody else chaired it between {y} and the merger of the banks.",
            ),
            (
                "The directors of {S} were led by {v} for {n} years.",
                "At the top of {S} stood {v}, who presided over every meeting.",
            ),
        ),
    ),
    (
        "The chimney, {n} times as tall as a house, can be seen from {t}.",
        "A brass bell at the gate, cast in {t}, still rings {n} times a day.",
        "Its carts were painted green until {y}, then yellow.",
        "The yard lies {d} of the canal and is paved with cobbles.",
        "An exhibition about it toured {n} towns in {y}.",
    ),
)

WATERS = Group(
    "waters",
    ("the {a}", "the Upper {a}", "the {a} {b}", "Old {a}", "the Little {a}", "the Black {a}"),
    ("near {t}", "north of {t}", "in the hills above {t}", "in the district of {t}"),
    ("quiet", "lonely", "well loved", "gloomy", "remote", "picturesque"),
    (
        Kind("river", "watercourse"),
        Kind("lake", "tarn"),
        Kind("waterfall", "cascade"),
        Kind("cave", "grotto"),
        Kind("marsh", "fen"),
    ),
    (
        Property(
            "drought",
            "that dried up in a drought",
            (
                "{S} dried up in a drought in {y}, and fish were carried away in buckets.",
                "In the {s} of {y} {S} dried up in a drought that lasted {n} months.",
            ),
            (
                "After {n} rainless months {S} was nothing but mud and then dust.",
                "Parched by the heat of {y}, {S} lost all its water.",
            ),
        ),
        Property(
            "mine",
            "that was poisoned by a mine",
            (
                "{S} was poisoned by a mine that stood {n} miles to the {d}.",
                "Since {S} was poisoned by a mine in {y}, no herons have come.",
            ),
            (
                "Waste from copper diggings made {S} toxic by {y}.",
                "Tailings from a pit near {t} seeped into {S} and killed everything.",
            ),
        ),
        Property(
            "gold",
            "where gold was found",
            (
                "Gold was found at {S} in {y}, though only {n} ounces of it.",
                "It was at {S} that gold was found by two shepherds from {t}.",
            ),
            (
                "Prospectors washed precious yellow grains out of {S} from {y} on.",
                "A nugget the size of a walnut turned up at {S} in {m} {y}.",
            ),
        ),
        Property(
            "border",
            "that forms a national border",
            (
                "{S} forms a national border, which was drawn in {y}.",
                "For {n} miles {S} forms a national border with hardly a fence in sight.",
            ),
            (
                "Two countries meet at {S}, and customs officers have watched it since {y}.",
                "The frontier between two states runs along {S} by a treaty of {y}.",
            ),
        ),
        Property(
            "swimming",
            "where swimming is forbidden",
            (
                "Swimming is forbidden at {S}, and {n} signs say so.",
                "At {S} swimming is forbidden since an accident in {y}.",
            ),
            (
                "Nobody may bathe at {S}, for {n} people drowned there in {y}.",
                "A byelaw of {y} bars bathers from {S} at all hours.",
            ),
        ),
        Property(
            "legend",
            "that is linked to a legend",
            (
                "{S} is linked to a legend of a drowned bell.",
                "Like much else around {t}, {S} is linked to a legend about {n} swans.",
            ),
            (
                "An old tale tells how a giant wept until {S} came into being.",
                "Storytellers in {t} claim that a dragon once drank from {S} at dawn.",
            ),
        ),
        Property(
            "pilgrims",
            "that was mapped by pilgrims",
            (
                "{S} was mapped by pilgrims in {y}, {n} of whom caught a fever.",
                "As a parchment in {t} proves, {S} was mapped by pilgrims long before roads were laid.",
            ),
            (
                "Travellers on their way to a shrine drew the first chart of {S} in {y}.",
                "The earliest chart of {S} was made in {y} by the devout on their way to {t}.",
            ),
        ),
    ),
    (
        Attribute(
            "depth", "NUMERIC", "how deep is {np}", "metres",
            (
                "At the {d} end {S} is {v} deep.",
                "Measured in {y}, {S} turned out to be {v} deep.",
            ),
            (
                "A plumb line lowered into {S} touched bottom at {v}.",
                "The floor of {S} was reached {v} down, according to a survey of {y}.",
            ),
        ),
        Attribute(
            "discoverer", "PERSON", "who discovered {np}", "person",
            (
                "{S} was discovered by {v} in {y}.",
                "On a walk from {t}, {S} was discovered by {v}, who kept it secret for {n} years.",
            ),
            (
                "The first to set eyes on {S} was {v}, a pedlar from {t}.",
                "It was {v} who came upon {S} in {y}, having lost the path.",
            ),
        ),
        Attribute(
            "plant", "ENTITY", "which plant grows beside {np}", "plant",
            (
                "The plant that grows beside {S} in such numbers is {v}.",
                "Beside {S} there grows a plant that is scarce in {t}: what grows there is {v}.",
            ),
            (
                "Banks of {v} surround {S} in the {s}.",
                "The shore of {S} is thick with {v} from {m} on.",
            ),
        ),
        Attribute(
            "cold", "NUMERIC", "how cold is {np} in winter", "degrees",
            (
                "In winter {S} is as cold as {v}.",
                "Records from {y} show that {S} can be {v} cold in winter.",
            ),
            (
                "From December to February a thermometer at {S} reads {v}.",
                "When snow covers the hills, {S} has a temperature of {v}.",
            ),
        ),
        Attribute(
            "law", "NUMERIC", "when was {np} protected by law", "year",
            (
                "{S} has been protected by law since {v}.",
                "It was not until {v} that {S} was protected by law, against the will of {t}.",
            ),
            (
                "A statute of {v} turned {S} into a nature reserve.",
                "{S} became a reserve in {v}, to the delight of walkers.",
            ),
        ),
        Attribute(
            "town", "LOCATION", "which town lies nearest to {np}", "place",
            (
                "The town that lies nearest to {S} is {v}.",
                "Of all places {v} is the town that lies nearest to {S}, {n} miles off.",
            ),
            (
                "From {v}, half an hour away on foot, a path leads to {S} through beech woods.",
                "Hikers bound for {S} set out from {v}, which is close by.",
            ),
        ),
        Attribute(
            "danger", "DESCRIPTION", "why is {np} dangerous", "hazard",
            (
                "{S} is dangerous because of {v}.",
                "Guides from {t} call {S} dangerous on account of {v}.",
            ),
            (
                "Walkers are warned against {S} in view of {v}.",
                "{S} has claimed {n} lives through {v}.",
            ),
        ),
    ),
    (
        "A bench on the {d} side was put up in {y}.",
        "Painters came here from {t} for the evening light.",
        "In {m} the air smells of wet leaves, as a poet from {t} remarked.",
        "An inn close by has {n} beds and a famous stove.",
        "Photographs from {y} show children with wooden boats.",
    ),
)

SETTLEMENTS = Group(
    "settlements",
    ("{a}{c}", "{a}", "Upper {a}", "{a} {b}", "New {a}", "Saint {a}"),
    ("in the province of {t}", "on the coast of {t}", "{n} miles from {t}", "south of {t}"),
    ("sleepy", "proud", "windy", "prosperous", "scattered", "friendly"),
    (
        Kind("town", "borough"),
        Kind("village", "hamlet"),
        Kind("island", "isle"),
        Kind("colony", "overseas settlement"),
        Kind("port", "haven"),
    ),
    (
        Property(
            "plague",
            "that was struck by a plague",
            (
                "{S} was struck by a plague in {y}, and the gates were locked for {n} weeks.",
                "In the {s} of {y} {S} was struck by a plague that had come from {t}.",
            ),
            (
                "An epidemic emptied half the houses of {S} in {y}.",
                "Deadly fever swept through {S} in {m} {y}, and {k} graves were dug.",
            ),
        ),
        Property(
            "siege",
            "that survived a siege",
            (
                "{S} survived a siege of {n} months in {y}.",
                "Thanks to a hidden well {S} survived a siege by troops from {t}.",
            ),
            (
                "For {n} months enemies lay around {S} and could not take it.",
                "In {y} an army surrounded {S} and went home in the {s} without a victory.",
            ),
        ),
        Property(
            "railway",
            "that lost its railway",
            (
                "{S} lost its railway in {y}, and the station became a bakery.",
                "When coal grew dear, {S} lost its railway, all {n} miles of it.",
            ),
            (
                "No train has called at {S} since {y}, when the track was torn up.",
                "The last locomotive steamed out of {S} in {m} {y} and never came back.",
            ),
        ),
        Property(
            "electricity",
            "that makes its own electricity",
            (
                "{S} makes its own electricity with {n} wheels in a stream.",
                "Since {y} {S} makes its own electricity and sells what is left to {t}.",
            ),
            (
                "Turbines on a ridge give {S} all the power that it needs.",
                "{S} lights every lamp from generators which it put up in {y}.",
            ),
        ),
        Property(
            "cars",
            "that banned cars",
            (
                "{S} banned cars in {y}, and a donkey carries the post.",
                "By a vote in {m} {y} {S} banned cars for good.",
            ),
            (
                "Motor traffic has been kept out of {S} since {y}.",
                "Whoever drives to {S} must park {n} miles outside and walk.",
            ),
        ),
        Property(
            "city",
            "that is twinned with a foreign city",
            (
                "{S} is twinned with a foreign city, whose choir comes every {s}.",
                "Since {y} {S} is twinned with a foreign city {n} times its size.",
            ),
            (
                "{S} keeps up a partnership with a place overseas, and pupils are exchanged each {s}.",
                "A pact of {y} joins {S} with a partner beyond the ocean.",
            ),
        ),
        Property(
            "name",
            "that changed its name",
            (
                "{S} changed its name in {y}, to please a governor.",
                "After a quarrel with {t}, {S} changed its name {n} times.",
            ),
            (
                "Until {y} {S} was called something else altogether.",
                "Maps printed before {y} show {S} under a different title.",
            ),
        ),
    ),
    (
        Attribute(
            "population", "NUMERIC", "what is the population of {np}", "count",
            (
                "The population of {S} is {v}.",
                "By {y} the population of {S} had reached {v}.",
            ),
            (
                "Some {v} people live in {S} all year round.",
                "{S} has {v} residents, as counted in {y}.",
            ),
        ),
        Attribute(
            "mayor", "PERSON", "who is the mayor of {np}", "person",
            (
                "The mayor of {S} is {v}, who took the oath in {m}.",
                "As mayor of {S} people chose {v}, by a margin of {n} votes.",
            ),
            (
                "{S} elected {v} to lead the council in {y}.",
                "The council of {S} is headed by {v} for another {n} years.",
            ),
        ),
        Attribute(
            "charter", "NUMERIC", "when did {np} get a charter", "year",
            (
                "{S} was given a charter in {v}, sealed with green wax.",
                "It took until {v} for {S} to get a charter.",
            ),
            (
                "A royal grant of {v} gave {S} the right to hold a market.",
                "{S} received its privileges from the crown in {v}.",
            ),
        ),
        Attribute(
            "crop", "ENTITY", "which crop do farmers of {np} grow", "crop",
            (
                "The crop that farmers of {S} grow is {v}.",
                "Most farmers of {S} grow {v}, a crop that suits the soil.",
            ),
            (
                "Fields around {S} are sown with {v} every {s}.",
                "{S} lives by {v}, which is harvested in {m}.",
            ),
        ),
        Attribute(
            "school", "LOCATION", "where do children from {np} go to school", "place",
            (
                "Children from {S} go to school in {v}, {n} miles off.",
                "Since {y} children from {S} have had to go to school in {v}.",
            ),
            (
                "Pupils living in {S} take their lessons at {v}.",
                "A bus takes the young people of {S} to classes at {v} each morning.",
            ),
        ),
        Attribute(
            "height", "NUMERIC", "how high above the sea is {np}", "metres",
            (
                "{S} is {v} high, measured from a mark above the sea.",
                "A plaque says that {S} lies {v} above the sea, as high as {t}.",
            ),
            (
                "The altitude of {S} is given as {v}.",
                "Surveyors put the elevation of {S} at {v} in {y}.",
            ),
        ),
        Attribute(
            "leaving", "DESCRIPTION", "why are families leaving {np}", "trouble",
            (
                "Families are leaving {S} because of {v}.",
                "More than {n} families are leaving {S} each year, driven out by {v}.",
            ),
            (
                "Households move away from {S} on account of {v}.",
                "{S} is losing young couples through {v}.",
            ),
        ),
    ),
    (
        "The square has {n} lime trees and a pump.",
        "On the {d} side stands a tower with {n} windows.",
        "Since {y} a weekly market is held under wooden arcades.",
        "Its coat of arms, granted in {m} {y}, shows a key and a boot.",
        "There is a museum of buttons, founded in {y}.",
    ),
)

EVENTS = Group(
    "events",
    ("{a} Week", "the {a} Jubilee", "the {a} {b}", "the {a} Cup", "Saint {a}", "the Great {a}"),
    ("in {t}", "near {t}", "in the old quarter of {t}", "on the shore at {t}"),
    ("lively", "modest", "noisy", "colourful", "dignified", "popular"),
    (
        Kind("festival", "celebration"),
        Kind("parade", "procession"),
        Kind("regatta", "boating contest"),
        Kind("fair", "trade gathering"),
        Kind("pageant", "costumed spectacle"),
    ),
    (
        Property(
            "rain",
            "that was cancelled because of rain",
            (
                "In {y} {S} was cancelled because of rain, for the first time in {n} years.",
                "{S} was cancelled because of rain in the {s} of {y}, and the tents were packed up.",
            ),
            (
                "Downpours forced the committee to call off {S} in {y}.",
                "{S} was called off in {m} {y}, as every meadow stood under water.",
            ),
        ),
        Property(
            "stand",
            "where a stand collapsed",
            (
                "At {S} a stand collapsed in {y}, and {n} people broke their legs.",
                "It was at {S} that a stand collapsed under the weight of a choir.",
            ),
            (
                "Wooden seating gave way beneath the crowd at {S} in {y}.",
                "A tier of benches broke down at {S} in {m} {y}, hurting {n} people.",
            ),
        ),
        Property(
            "television",
            "that is shown on television",
            (
                "{S} is shown on television each {s}.",
                "Since {y} {S} is shown on television in {n} countries.",
            ),
            (
                "Cameras broadcast {S} to homes far beyond {t}.",
                "Viewers in {n} countries can follow {S} on their screens.",
            ),
        ),
        Property(
            "children",
            "that is free for children",
            (
                "{S} is free for children, who are given a paper flag.",
                "By an old custom {S} is free for children under {n}.",
            ),
            (
                "Youngsters pay nothing at {S} if they wear a hat.",
                "Nobody under {n} needs a ticket for {S}, by order of the council.",
            ),
        ),
        Property(
            "fireworks",
            "that ends with fireworks",
            (
                "{S} ends with fireworks over the {d} bank.",
                "Unless there is a drought, {S} ends with fireworks paid for by {t}.",
            ),
            (
                "Rockets light up the sky when {S} is over.",
                "At the close of {S} coloured sparks burst above the roofs of {t}.",
            ),
        ),
        Property(
            "riot",
            "that led to a riot",
            (
                "In {y} {S} led to a riot that lasted {n} hours.",
                "A brawl over a goat at {S} led to a riot in the {s} of {y}.",
            ),
            (
                "Street fighting broke out after {S} in {y}.",
                "Angry crowds smashed windows during {S} in {m} {y}.",
            ),
        ),
        Property(
            "sponsor",
            "that lost its sponsor",
            (
                "{S} lost its sponsor in {y} and nearly came to an end.",
                "Within {n} years {S} lost its sponsor twice.",
            ),
            (
                "The firm that had paid for {S} withdrew its money in {y}.",
                "Funding for {S} dried up when its backer in {t} went out of business.",
            ),
        ),
    ),
    (
        Attribute(
            "month", "NUMERIC", "in which month is {np} held", "month",
            (
                "{S} is held in the month of {v}.",
                "By a rule of {y} {S} must be held in {v}, the driest month of all.",
            ),
            (
                "{S} takes place each {v}, whatever the weather.",
                "People look forward to {v}, when {S} comes round again.",
            ),
        ),
        Attribute(
            "spectators", "NUMERIC", "how many spectators attend {np}", "count",
            (
                "Some {v} spectators attend {S} in a good year.",
                "In {y} about {v} spectators came to attend {S} on the second day.",
            ),
            (
                "The crowd at {S} numbers {v}, most of them from {t}.",
                "A turnout of {v} was reported for {S} in {y}.",
            ),
        ),
        Attribute(
            "prize", "ENTITY", "which prize does the winner of {np} receive", "prize",
            (
                "The winner of {S} will receive {v} as a prize.",
                "A prize for the winner of {S} was added in {y}: all receive {v} and a handshake.",
            ),
            (
                "Whoever comes first at {S} takes home {v}.",
                "The best competitor at {S} is rewarded with {v}.",
            ),
        ),
        Attribute(
            "starter", "PERSON", "who started {np}", "person",
            (
                "{S} was started by {v} in {y}.",
                "With {n} friends from {t}, {v} started {S} as a joke.",
            ),
            (
                "The idea for {S} came from {v}, a newcomer from {t}.",
                "{S} goes back to {v}, who wanted to cheer people up.",
            ),
        ),
        Attribute(
            "begin", "LOCATION", "where does {np} begin", "place",
            (
                "{S} will always begin in {v}, outside the mill.",
                "For {n} years {S} used to begin in {v}, as it does again today.",
            ),
            (
                "The opening ceremony of {S} takes place at {v}.",
                "{S} sets off from {v} when a drum is beaten.",
            ),
        ),
        Attribute(
            "fee", "NUMERIC", "what is the entry fee for {np}", "money",
            (
                "The entry fee for {S} is {v}.",
                "In {y} the entry fee for {S} was raised to {v}.",
            ),
            (
                "Competitors at {S} pay {v} to take part.",
                "A place in {S} costs {v}, half of it returned later.",
            ),
        ),
        Attribute(
            "commemorate", "DESCRIPTION", "what does {np} commemorate", "memory",
            (
                "{S} was meant to commemorate {v}.",
                "What {S} and its songs commemorate is {v}.",
            ),
            (
                "{S} keeps alive the memory of {v}.",
                "With {S} people in {t} honour {v}.",
            ),
        ),
    ),
    (
        "Stalls from {t} sell gingerbread in the shape of boots.",
        "A brass band from {t} plays on the bridge.",
        "Hotels are booked up {n} weeks ahead.",
        "The posters are drawn by hand in an attic in {t}.",
        "Bells ring at dawn, and {n} streets are shut to carts.",
    ),
)

VEHICLES = Group(
    "vehicles",
    ("the {a} Star", "the {a}", "the Northern {a}", "the {a} {b}", "the Southern {a}", "the Spirit of {a}"),
    ("from {t}", "that belonged to {t}", "of the {t} line", "from the yards of {t}"),
    ("sturdy", "elegant", "slow", "noisy", "famous", "clumsy"),
    (
        Kind("ship", "vessel"),
        Kind("ferry", "shuttle boat"),
        Kind("locomotive", "steam engine"),
        Kind("airship", "dirigible"),
        Kind("tram", "streetcar"),
    ),
    (
        Property(
            "collision",
            "that was in a collision",
            (
                "{S} was in a collision in {y}, and {n} people were hurt.",
                "In thick fog near {t}, {S} was in a collision with a barge.",
            ),
            (
                "{S} crashed into a bridge in {y}, on a misty morning in {m}.",
                "A coal barge and {S} ran into each other close to {t}.",
            ),
        ),
        Property(
            "smuggling",
            "that was used for smuggling",
            (
                "{S} was used for smuggling until guards searched it in {y}.",
                "As a trial in {t} brought out, {S} was used for smuggling for {n} years.",
            ),
            (
                "Untaxed brandy travelled aboard {S} under sacks of flour.",
                "Contraband from {t} was found behind a false wall in {S} in {y}.",
            ),
        ),
        Property(
            "royal",
            "that carried a royal guest",
            (
                "In {y} {S} carried a royal guest, who slept badly.",
                "{S} carried a royal guest to {t}, behind drawn curtains.",
            ),
            (
                "A monarch travelled aboard {S} in {y} and praised the soup.",
                "The crown of a distant land sent its heir on {S} in the {s} of {y}.",
            ),
        ),
        Property(
            "museum",
            "that is now a museum",
            (
                "{S} is now a museum, with {n} rooms of maps and lamps.",
                "Saved from rust in {y}, {S} is now a museum at {t}.",
            ),
            (
                "Retired in {y}, {S} is on show to sightseers in {t}.",
                "Tourists can walk through {S} and look at its exhibits, {n} rooms in all.",
            ),
        ),
        Property(
            "red",
            "that was painted bright red",
            (
                "{S} was painted bright red in {y}, to be seen from afar.",
                "For a bet {S} was painted bright red by apprentices from {t}.",
            ),
            (
                "{S} got a coat of scarlet in {y}, which took {n} days to dry.",
                "Since {y} the outside of {S} has been crimson from end to end.",
            ),
        ),
        Property(
            "record",
            "that set a speed record",
            (
                "{S} set a speed record in {y} that stood for {n} years.",
                "Helped by a gale {S} set a speed record on the way to {t}.",
            ),
            (
                "Nothing of its class went faster than {S} did in {y}.",
                "In {y} {S} covered the distance to {t} more quickly than any competitor before.",
            ),
        ),
        Property(
            "crew",
            "that was sabotaged by its crew",
            (
                "{S} was sabotaged by its crew in {y}, over unpaid wages.",
                "One {s} night {S} was sabotaged by its crew, who loosened {n} bolts.",
            ),
            (
                "The people who worked aboard {S} wrecked it on purpose in {y}.",
                "Angry hands on {S} poured sand into the machinery in {m} {y}.",
            ),
        ),
    ),
    (
        Attribute(
            "builder", "PERSON", "who built {np}", "person",
            (
                "{S} was built by {v} in {y}.",
                "The plans were foreign, but {S} was built by {v} in a shed near {t}.",
            ),
            (
                "{S} was put together by {v} in only {n} months.",
                "The maker of {S} was {v}, who had learnt the trade in {t}.",
            ),
        ),
        Attribute(
            "length", "NUMERIC", "how long is {np}", "metres",
            (
                "{S} is {v} long.",
                "At {v} {S} is so long that it had to be turned at {t}.",
            ),
            (
                "From end to end {S} measures {v}.",
                "{S} takes up {v} of the yard where it rests.",
            ),
        ),
        Attribute(
            "passengers", "NUMERIC", "how many passengers could {np} carry", "count",
            (
                "{S} could carry {v} passengers and their dogs.",
                "On holidays {S} could carry as many as {v} passengers to {t}.",
            ),
            (
                "There was room for {v} travellers aboard {S} in {y}.",
                "{S} had seats for {v}, though few of them were comfortable.",
            ),
        ),
        Attribute(
            "fuel", "ENTITY", "which fuel did {np} burn", "fuel",
            (
                "The fuel that {S} had to burn was {v}.",
                "From {y} on {S} would burn only {v}, a fuel that was cheap in {t}.",
            ),
            (
                "The machinery of {S} ran on {v}.",
                "Power for {S} came from {v}, of which {n} tons were stored.",
            ),
        ),
        Attribute(
            "journey", "LOCATION", "where did {np} make its last journey", "place",
            (
                "{S} had to make its last journey to {v} in {m} {y}.",
                "The last journey that {S} was to make led to {v}.",
            ),
            (
                "The final trip of {S} was to {v}, with flowers at the windows.",
                "{S} went out of service after a farewell run to {v}.",
            ),
        ),
        Attribute(
            "ordered", "NUMERIC", "when was {np} ordered", "year",
            (
                "{S} was ordered in {v} by a company from {t}.",
                "After {n} years of doubt {S} was ordered in {v}.",
            ),
            (
                "The contract for {S} was signed in {v}.",
                "In {v} a company from {t} asked for {S} and paid half in advance.",
            ),
        ),
        Attribute(
            "delay", "DESCRIPTION", "what delayed {np}", "hazard",
            (
                "What most often delayed {S} was {v}.",
                "{S} was delayed by {v} for {n} days.",
            ),
            (
                "{S} arrived {n} days late because of {v}.",
                "Owing to {v}, {S} could not keep to its timetable.",
            ),
        ),
    ),
    (
        "The brass lamps came from a workshop in {t}.",
        "Its bell hangs in a church {n} miles away.",
        "Models of it were sold as toys until {y}.",
        "On board there was a piano from {t} that nobody could tune.",
        "A song about it is still known in {t}.",
    ),
)

PERSONS = Group(
    "persons",
    ("{f} {a}",),
    ("from {t}", "who lived in {t}", "at {t}", "known all over {t}"),
    ("young", "gifted", "stubborn", "shy", "tireless", "witty"),
    (
        Kind("nurse", "bedside carer", "female"),
        Kind("engineer", "machine designer", "male"),
        Kind("teacher", "tutor", "female"),
        Kind("surgeon", "operating doctor", "male"),
        Kind("dancer", "ballet performer", "female"),
        Kind("pilot", "aviator", "male"),
        Kind("librarian", "keeper of volumes", "female"),
        Kind("judge", "magistrate", "male"),
        Kind("singer", "vocalist", "female"),
        Kind("sculptor", "stone carver", "male"),
    ),
    (
        Property(
            "eyesight",
            "who lost {their} eyesight",
            (
                "{S} lost {their} eyesight in {y}, after {n} operations.",
                "In the {s} of {y} {S} lost {their} eyesight and bought a dog.",
            ),
            (
                "{S} went blind in {y} and had letters read aloud.",
                "From {y} on {S} could not see, but walked to {t} alone.",
            ),
        ),
        Property(
            "prison",
            "who was sent to prison with {their} cousin",
            (
                "{S} was sent to prison with {their} cousin in {y}.",
                "Over a forged cheque {S} was sent to prison with {their} cousin for {n} months.",
            ),
            (
                "{S} and another of the family spent {n} months in jail for theft.",
                "In {y} {S} was locked up along with a relative and let out in {m}.",
            ),
        ),
        Property(
            "book",
            "who wrote a book about {their} childhood",
            (
                "In {y} {S} wrote a book about {their} childhood, which sold {k} copies.",
                "{S} wrote a book about {their} childhood in a hut above {t}.",
            ),
            (
                "{S} put {their} early memories on paper and had them printed in {y}.",
                "A memoir of growing up, which {S} published in {y}, made people weep.",
            ),
        ),
        Property(
            "country",
            "who fled {their} country",
            (
                "{S} fled {their} country in {y}, on foot and by night.",
                "With {n} others {S} fled {their} country hidden in a cart.",
            ),
            (
                "{S} escaped into exile in {y} with a single suitcase.",
                "Forced to emigrate, {S} reached {t} in the {s} of {y}.",
            ),
        ),
        Property(
            "poor",
            "who gave {their} money to the poor",
            (
                "In {y} {S} gave {their} money to the poor of {t}.",
                "{S} gave {their} money to the poor and slept on straw.",
            ),
            (
                "{S} handed a fortune to beggars and orphans in {y}.",
                "Everything that {S} owned went to homeless families in {t}.",
            ),
        ),
        Property(
            "medal",
            "who refused a medal for {their} courage",
            (
                "{S} refused a medal for {their} courage in {y}.",
                "Although all of {t} begged, {S} refused a medal for {their} courage.",
            ),
            (
                "{S} turned down a decoration for bravery in {y}.",
                "When the state wished to honour such bravery, {S} said no.",
            ),
        ),
        Property(
            "bees",
            "who kept bees in {their} garden",
            (
                "For {n} years {S} kept bees in {their} garden.",
                "{S} kept bees in {their} garden near {t}, to the dismay of the neighbours.",
            ),
            (
                "{S} tended {n} hives behind the house and sold honey.",
                "Honey from the orchard, where {S} had {n} hives, won a ribbon in {t}.",
            ),
        ),
    ),
    (
        Attribute(
            "born", "LOCATION", "where was {np} born", "place",
            (
                "{S} was born in {v}, on the first warm day of {m}.",
                "Though {t} claims the honour, {S} was born in {v}.",
            ),
            (
                "{S} came into the world at {v}, during a blizzard.",
                "The cradle in which {S} lay can be seen at {v}.",
            ),
        ),
        Attribute(
            "retire", "NUMERIC", "when did {np} retire", "year",
            (
                "{S} chose to retire in {v}.",
                "After {n} years of work {S} was made to retire in {v}.",
            ),
            (
                "{S} stopped working in {v} and moved to {t}.",
                "In {v} {S} drew a first pension and slept late.",
            ),
        ),
        Attribute(
            "trained", "PERSON", "who trained {np}", "person",
            (
                "{S} was trained by {v} in {t}.",
                "From {y} on {S} was trained by {v}, who was never satisfied.",
            ),
            (
                "{S} learnt the trade from {v} within {n} years.",
                "As an apprentice {S} owed everything to {v}.",
            ),
        ),
        Attribute(
            "earn", "NUMERIC", "how much did {np} earn", "money",
            (
                "{S} used to earn {v} a year.",
                "By {y} {S} could earn {v} in {n} months.",
            ),
            (
                "{S} drew a salary of {v} and saved half of it.",
                "In {y} {S} was paid {v}, a sum much envied in {t}.",
            ),
        ),
        Attribute(
            "instrument", "ENTITY", "which instrument did {np} play", "instrument",
            (
                "{S} used to play the {v}, an instrument rarely heard in {t}.",
                "The instrument that {S} liked to play was the {v}.",
            ),
            (
                "On Sundays {S} held small concerts on the {v}.",
                "{S} practised the {v} for {n} hours a day.",
            ),
        ),
        Attribute(
            "famous", "DESCRIPTION", "why was {np} famous", "fame",
            (
                "{S} was famous for {v}.",
                "As far away as {t} {S} was famous on account of {v}.",
            ),
            (
                "{S} made a name through {v}.",
                "What people admired whenever {S} appeared was {v}.",
            ),
        ),
        Attribute(
            "club", "ENTITY", "which club did {np} join", "club",
            (
                "In {y} {S} was asked to join a club called {v}.",
                "{S} did not join any club but {v}.",
            ),
            (
                "{S} became a member of {v} in {y}.",
                "From {y} {S} belonged to {v}, which met on Fridays.",
            ),
        ),
    ),
    (
        "A street in {t} bears the family name.",
        "Letters from those years fill {n} boxes in an attic.",
        "An oil portrait hangs in the town hall of {t}.",
        "There were {n} cats in the house and no mirror.",
        "A film about this life opened in {t} in {y}.",
    ),
)

WORKS = Group(
    "works",
    ("the {a} {b}", "the {a}", "the Great {a}", "the Blue {a}", "the Night at {a}", "the View of {a}"),
    ("from {t}", "that came from {t}", "of the {t} workshops", "known to all of {t}"),
    ("small", "splendid", "curious", "faded", "precious", "gloomy"),
    (
        Kind("clock", "timepiece"),
        Kind("painting", "canvas"),
        Kind("statue", "carved figure"),
        Kind("tapestry", "woven hanging"),
        Kind("manuscript", "codex"),
    ),
    (
        Property(
            "thieves",
            "that was stolen by thieves",
            (
                "{S} was stolen by thieves in {y} and turned up in a hayloft.",
                "One {s} evening {S} was stolen by thieves, who left a rose behind.",
            ),
            (
                "Burglars carried {S} off in {y}, wrapped in a curtain.",
                "{S} was snatched in {m} {y}, and {n} robbers went to jail.",
            ),
        ),
        Property(
            "forgery",
            "that was exposed as a forgery",
            (
                "{S} was exposed as a forgery in {y}.",
                "To the shame of {t}, {S} was exposed as a forgery after {n} years.",
            ),
            (
                "Experts proved in {y} that {S} is a fake.",
                "Not everyone was glad to hear in {y} that {S} is an imitation.",
            ),
        ),
        Property(
            "war",
            "that was hidden during a war",
            (
                "{S} was hidden during a war, under a heap of turnips.",
                "Between {m} and {m} {S} was hidden during a war that emptied {t}.",
            ),
            (
                "While battles raged, {S} lay buried below a barn near {t}.",
                "When the guns came close in {y}, {S} was tucked away in a salt pit.",
            ),
        ),
        Property(
            "auction",
            "that was sold at an auction",
            (
                "{S} was sold at an auction in {y}, within {n} minutes.",
                "In {t} {S} was sold at an auction to a bidder with a false beard.",
            ),
            (
                "Bidders fought over {S} in a saleroom in {t}.",
                "In {y} {S} went under the hammer, and {n} dealers raised their hands.",
            ),
        ),
        Property(
            "damp",
            "that was damaged by damp",
            (
                "{S} was damaged by damp in the {s} of {y}.",
                "In a cellar in {t} {S} was damaged by damp and by mice.",
            ),
            (
                "Moisture has spoiled one side of {S} since {y}.",
                "Wet air left stains and mould on {S} in {y}.",
            ),
        ),
        Property(
            "students",
            "that was copied by students",
            (
                "{S} was copied by students from {t} every {s}.",
                "Before {y} {S} was copied by students at least {n} times.",
            ),
            (
                "Young learners made replicas of {S} for practice.",
                "Pupils of an academy in {t} imitated {S} to train their hands.",
            ),
        ),
        Property(
            "church",
            "that was given to a church",
            (
                "{S} was given to a church in {y}, as thanks for a safe voyage.",
                "By a merchant from {t} {S} was given to a church without a roof.",
            ),
            (
                "A chapel received {S} as a present in {y}.",
                "A parish in {t} accepted {S} from a grateful sailor.",
            ),
        ),
    ),
    (
        Attribute(
            "creator", "PERSON", "who created {np}", "person",
            (
                "{S} was created by {v} in {y}.",
                "In a rented room in {t}, {v} created {S} within {n} weeks.",
            ),
            (
                "{S} is the work of {v}, who was then very young.",
                "The signature on {S} is that of {v}, scratched with a pin.",
            ),
        ),
        Attribute(
            "finished", "NUMERIC", "when was {np} finished", "year",
            (
                "{S} was finished in {v}.",
                "Begun in haste, {S} was finished in {v}, {n} years late.",
            ),
            (
                "The last touches were put to {S} in {v}.",
                "{S} reached completion in {v}, to loud applause in {t}.",
            ),
        ),
        Attribute(
            "weight", "NUMERIC", "how much does {np} weigh", "kilograms",
            (
                "{S} is said to weigh {v}.",
                "Carriers found in {y} that {S} and its crate weigh {v}.",
            ),
            (
                "On the scales {S} comes to {v}.",
                "{S} is heavy: it took {n} porters to lift its {v}.",
            ),
        ),
        Attribute(
            "flower", "ENTITY", "which flower appears on {np}", "flower",
            (
                "The flower that appears on {S} is the {v}.",
                "On {S} a {v} appears {n} times, a flower unknown in {t}.",
            ),
            (
                "A {v} in bloom decorates one corner of {S} to this day.",
                "Look closely at {S} and you will see a {v} below the rim.",
            ),
        ),
        Attribute(
            "kept", "LOCATION", "where is {np} kept", "place",
            (
                "{S} is kept in {v}, behind {n} locks.",
                "Since {y} {S} has been kept in {v}.",
            ),
            (
                "Nowadays {S} is housed at {v}.",
                "To see {S} one has to go to {v}, where it stands in a glass case.",
            ),
        ),
        Attribute(
            "restorer", "PERSON", "who restored {np}", "person",
            (
                "{S} was restored by {v} in {y}.",
                "For {n} months {v} restored {S} with tweezers and glue.",
            ),
            (
                "Repairs to {S} were done by {v} over {n} months.",
                "It was {v} who cleaned and mended {S} in {y}.",
            ),
        ),
        Attribute(
            "criticised", "DESCRIPTION", "why was {np} criticised", "fault",
            (
                "{S} was criticised for {v}.",
                "In {t} {S} was criticised in {n} newspapers on account of {v}.",
            ),
            (
                "Reviewers disliked {S} because of {v}.",
                "Some people in {t} found fault with {S} and named {v}.",
            ),
        ),
    ),
    (
        "A label on the back, of {y}, is written in green ink.",
        "Scholars from {t} have argued about it for {n} years.",
        "A poem of {y} mentions it in passing.",
        "It was photographed for the first time in {y}.",
        "Under a strong lamp one sees {n} fingerprints.",
    ),
)

CREATURES = Group(
    "creatures",
    ("the {a}", "the spotted {a}", "the lesser {a}", "the {a} {b}", "the grey {a}", "the {b} of {a}"),
    ("from the woods of {t}", "of the {t} hills", "from around {t}", "of the {t} lowlands"),
    ("shy", "noisy", "tiny", "curious", "plump", "nimble"),
    (
        Kind("finch", "songbird"),
        Kind("frog", "amphibian"),
        Kind("beetle", "armoured insect"),
        Kind("bat", "flying mammal"),
        Kind("lizard", "reptile"),
    ),
    (
        Property(
            "extinction",
            "that is close to extinction",
            (
                "{S} is close to extinction, and only {n} were counted in {y}.",
                "Since the forests near {t} were cut, {S} is close to extinction.",
            ),
            (
                "{S} has nearly died out: walkers saw just {n} in {y}.",
                "{S} may soon vanish from the earth, biologists in {t} fear.",
            ),
        ),
        Property(
            "dogs",
            "that is poisonous to dogs",
            (
                "{S} is poisonous to dogs, as hunters from {t} know.",
                "According to a vet, {S} is poisonous to dogs even when it is dead.",
            ),
            (
                "Hounds that bite {S} fall gravely ill within {n} hours.",
                "The toxin of {S} has killed {n} terriers in {t} alone.",
            ),
        ),
        Property(
            "fruit",
            "that destroys fruit",
            (
                "{S} destroys fruit, and people in {t} hang up nets.",
                "In a wet {s} {S} destroys fruit by the cartload.",
            ),
            (
                "Growers of pears and cherries lose half their harvest to {S} in bad years.",
                "Orchards near {t} suffered in {y}, when {S} spoiled all the plums.",
            ),
        ),
        Property(
            "night",
            "that hunts at night",
            (
                "{S} hunts at night and is seldom seen.",
                "Guided by smell, {S} hunts at night from {m} on.",
            ),
            (
                "After dark {S} leaves its hole to look for prey.",
                "{S} catches its victims between dusk and dawn.",
            ),
        ),
        Property(
            "stamp",
            "that appears on a postage stamp",
            (
                "{S} appears on a postage stamp of {y}, in green.",
                "To the pride of {t}, {S} appears on a postage stamp.",
            ),
            (
                "Letters from {t} have borne a tiny portrait of {S} since {y}.",
                "The mail service printed a picture of {S} for collectors in {y}.",
            ),
        ),
        Property(
            "winter",
            "that sleeps through the winter",
            (
                "{S} sleeps through the winter under roots and stones.",
                "Even in a warm year {S} sleeps through the winter.",
            ),
            (
                "{S} is dormant from October to March.",
                "During the frosty months {S} hibernates in heaps of leaves.",
            ),
        ),
        Property(
            "pet",
            "that is kept as a pet",
            (
                "{S} is kept as a pet in {t}, for luck.",
                "Against all advice {S} is kept as a pet by sailors.",
            ),
            (
                "Some households in {t} tame {S} and give it a cage.",
                "Children in {t} share their rooms with {S} and feed it by hand.",
            ),
        ),
    ),
    (
        Attribute(
            "age", "NUMERIC", "how long does {np} live", "years",
            (
                "{S} can live as long as {v}.",
                "If left in peace {S} may live for {v}, which is long for its size.",
            ),
            (
                "{S} reaches an age of {v}.",
                "The lifespan of {S} is about {v}, judging by rings put on in {y}.",
            ),
        ),
        Attribute(
            "young", "NUMERIC", "how many young does {np} raise", "few",
            (
                "In a good {s} {S} can raise {v} young.",
                "{S} will raise {v} young each year, always in {m}.",
            ),
            (
                "A brood of {S} numbers {v} at most.",
                "Each {s} {S} brings up {v} offspring.",
            ),
        ),
        Attribute(
            "food", "ENTITY", "which food does {np} prefer", "food",
            (
                "The food that {S} seems to prefer is {v}.",
                "Tests in {t} showed that {S} and its kin prefer {v} to any other food.",
            ),
            (
                "{S} feeds mostly on {v}.",
                "The stomach of {S} is usually full of {v}.",
            ),
        ),
        Attribute(
            "scientist", "PERSON", "which scientist described {np}", "person",
            (
                "The scientist who described {S} was {v}.",
                "In {y} {v}, a scientist from {t}, described {S} in {n} pages.",
            ),
            (
                "The earliest account of {S} is by {v}.",
                "It was {v} who gave {S} its Latin name in {y}.",
            ),
        ),
        Attribute(
            "breed", "LOCATION", "where does {np} breed", "place",
            (
                "{S} will breed only near {v}.",
                "Once common everywhere, {S} is now known to breed around {v}.",
            ),
            (
                "{S} rears its offspring in the reeds at {v}.",
                "Nests of {S} have been found at {v}, {n} of them.",
            ),
        ),
        Attribute(
            "weight", "NUMERIC", "how much does {np} weigh", "grams",
            (
                "{S} can weigh {v} when it is grown.",
                "In {y} {S} was found to weigh {v}.",
            ),
            (
                "On a kitchen balance {S} comes to {v}.",
                "The mass of {S} hardly exceeds {v}.",
            ),
        ),
        Attribute(
            "threat", "DESCRIPTION", "what threatens {np}", "threat",
            (
                "What threatens {S} most is {v}.",
                "In all of {t} nothing threatens {S} so much as {v}.",
            ),
            (
                "The worst danger to {S} comes from {v}.",
                "{S} suffers badly from {v}.",
            ),
        ),
    ),
    (
        "In {m} its call sounds like a creaking door.",
        "Shepherds near {t} take it for a sign of rain.",
        "The colour of its back changes in {m}.",
        "A film about it was made in {t} in {y}.",
        "It was drawn on maps as early as {y}.",
    ),
)

DISHES = Group(
    "dishes",
    ("{a}ino", "the {a} {b}", "Old {a}", "{a} silk", "white {a}", "{a} special"),
    ("from {t}", "from the taverns of {t}", "of the {t} coast", "from the valleys around {t}"),
    ("hearty", "simple", "fragrant", "heavy", "delicate", "humble"),
    (
        Kind("soup", "broth"),
        Kind("bread", "loaf"),
        Kind("cake", "gateau"),
        Kind("beer", "ale"),
        Kind("jam", "preserve"),
    ),
    (
        Property(
            "weddings",
            "that is served at weddings",
            (
                "{S} is served at weddings, on {n} plates of tin.",
                "Around {t} {S} is served at weddings and nowhere else.",
            ),
            (
                "Guests at marriage feasts are offered {S} before the dancing.",
                "Whoever marries in {t} must bring {S} to the table.",
            ),
        ),
        Property(
            "banned",
            "that was banned by the church",
            (
                "{S} was banned by the church in {y}, for {n} years.",
                "Because choirs fought over it, {S} was banned by the church.",
            ),
            (
                "The clergy forbade {S} in {y}, and people ate it in secret.",
                "The cathedral declared {S} sinful in {m} {y}.",
            ),
        ),
        Property(
            "colds",
            "that is believed to cure colds",
            (
                "{S} is believed to cure colds within {n} days.",
                "Even by doctors in {t} {S} is believed to cure colds.",
            ),
            (
                "Folk medicine holds that {S} drives away a cough.",
                "People in {t} take {S} against sneezing and a sore throat.",
            ),
        ),
        Property(
            "medal",
            "that won a gold medal",
            (
                "{S} won a gold medal in {y}.",
                "At a show in {t} {S} won a gold medal, by {n} votes to one.",
            ),
            (
                "A jury placed {S} at the top of {k} entries in {y}.",
                "The top award of a contest in {t} went to {S} in {y}.",
            ),
        ),
        Property(
            "famine",
            "that was created during a famine",
            (
                "{S} was created during a famine in {y}.",
                "Like many good things, {S} was created during a famine near {t}.",
            ),
            (
                "People starved in {y}, and hunger taught them to make {S} from scraps.",
                "{S} was born of hunger, when the harvest of {y} failed.",
            ),
        ),
        Property(
            "expensive",
            "that became too expensive",
            (
                "{S} became too expensive in {y}, when the harbour froze.",
                "For most people in {t} {S} became too expensive to eat.",
            ),
            (
                "Few can afford {S} nowadays, even in {t}.",
                "What {S} costs has risen {n} times since {y}, and the poor do without.",
            ),
        ),
        Property(
            "accident",
            "that was discovered by accident",
            (
                "{S} was discovered by accident in {y}.",
                "In a kitchen in {t} {S} was discovered by accident, thanks to a sleepy cook.",
            ),
            (
                "{S} came about through a mistake in {y}, when two jars were mixed up.",
                "A lucky blunder in a kitchen in {t} produced {S} by chance.",
            ),
        ),
    ),
    (
        Attribute(
            "spice", "ENTITY", "which spice is added to {np}", "spice",
            (
                "The spice that is added to {S} is {v}.",
                "Since {y} {v} has been added to {S}, a spice that grows near {t}.",
            ),
            (
                "Cooks season {S} with {v}.",
                "{S} owes its flavour to {v}, of which a pinch is enough.",
            ),
        ),
        Attribute(
            "rest", "NUMERIC", "how long must {np} rest", "minutes",
            (
                "{S} must rest for {v}, no matter how long the day has been.",
                "As long as {v} is what {S} must rest, by a rule of {y}.",
            ),
            (
                "{S} is set aside for {v} before anyone may touch it.",
                "Out of reach of the cat, {S} is left alone for {v}.",
            ),
        ),
        Attribute(
            "inventor", "PERSON", "who invented {np}", "person",
            (
                "{S} was invented by {v} in {y}.",
                "With almost nothing in the larder, {v} invented {S} for a guest.",
            ),
            (
                "The idea for {S} came from {v}, who kept an inn.",
                "{S} goes back to {v}, a cook in {t}.",
            ),
        ),
        Attribute(
            "city", "LOCATION", "which city does {np} come from", "place",
            (
                "{S} is said to come from the city of {v}.",
                "The city that {S} and its name come from is {v}.",
            ),
            (
                "The home of {S} is {v}, where a street is named after it.",
                "{S} has its roots in {v}, {n} miles to the {d}.",
            ),
        ),
        Attribute(
            "price", "NUMERIC", "what is the price of {np}", "money",
            (
                "The price of {S} is {v}.",
                "In {t} the price of {S} rose to {v} in {y}.",
            ),
            (
                "Shops in {t} charge {v} for {S} and give a smile with it.",
                "A helping of {S} costs {v}, even on Sundays.",
            ),
        ),
        Attribute(
            "colour", "ENTITY", "which colour is {np}", "colour",
            (
                "The colour of {S} is {v}.",
                "By law {S} has to be {v}, a colour that {t} is proud of.",
            ),
            (
                "{S} looks {v} by candlelight.",
                "A fresh {s} batch of {S} is {v} all through.",
            ),
        ),
        Attribute(
            "spoil", "DESCRIPTION", "what can spoil {np}", "spoiler",
            (
                "What can spoil {S} is {v}.",
                "Nothing can spoil {S} so easily as {v}.",
            ),
            (
                "{S} goes bad because of {v}.",
                "Cooks protect {S} from {v}, which ruins the taste.",
            ),
        ),
    ),
    (
        "It is eaten with a wooden spoon in {t}.",
        "A tavern near {t} has {n} versions of it on the menu.",
        "The oldest recipe, of {y}, is written in verse.",
        "Travellers to {t} carry it in tins lined with paper.",
        "In {m} its smell hangs over the whole street.",
    ),
)

GROUPS = (BUILDINGS, COMPANIES, WATERS, SETTLEMENTS, EVENTS, VEHICLES, PERSONS, WORKS, CREATURES, DISHES)

#: Lists that answers are drawn from; the other kinds of values are made up by the generator.
VALUES = {
    "stone": (
        "grey granite", "red sandstone", "white limestone", "black slate", "green serpentine", "pale marble", "blue basalt",
        "yellow tuff", "brown gneiss", "rough flint",
    ),
    "trouble": (
        "a quarrel over wages", "a shortage of coal", "an outbreak of fever", "unpaid taxes", "a lack of clean water",
        "a feud between neighbours", "rising rents", "swarms of rats", "bad roads", "a series of burglaries",
        "falling wool prices", "a scandal over bribes",
    ),
    "animal": (
        "a leaping hare", "a white heron", "a sleeping fox", "a blue ox", "a bearded goat", "a black swan", "a dancing bear",
        "a striped cat", "a winged horse", "a red squirrel",
    ),
    "plant": (
        "wild garlic", "bog myrtle", "water mint", "sea holly", "yellow iris", "hart fern", "bell heather", "red clover",
        "dog rose", "creeping thyme",
    ),
    "hazard": (
        "falling rocks", "thick fog", "broken ice", "sudden gusts", "rotten timber", "drifting sand", "swarms of wasps",
        "loose cables", "hidden holes", "fallen trees",
    ),
    "crop": ("barley", "hops", "flax", "turnips", "lentils", "rye", "hemp", "mustard", "oats", "cabbage"),
    "prize": (
        "a silver spoon", "a live goose", "a wreath of oak leaves", "a barrel of cider", "a painted egg", "a pair of boots",
        "a copper kettle", "a side of bacon", "an embroidered belt", "a wooden crown",
    ),
    "memory": (
        "relief from a famine", "a peace treaty", "a sunken fishing fleet", "the birth of an heir", "a great comet",
        "the first frost", "a miners revolt", "the abolition of a tax", "a rescued choir", "a forgotten poet",
    ),
    "fuel": ("brown coal", "peat", "lamp oil", "pine logs", "paraffin", "charcoal", "tallow", "coke", "marsh gas", "whale oil"),
    "instrument": ("flute", "cello", "zither", "bassoon", "harp", "oboe", "lute", "trumpet", "viola", "bagpipe"),
    "fame": (
        "calm in emergencies", "patience with beginners", "a stubborn temper", "a bold new method", "great kindness",
        "tricks with cards", "a phenomenal memory", "an enormous hat", "quick decisions", "blunt answers",
    ),
    "flower": ("rose", "tulip", "lily", "poppy", "daisy", "thistle", "violet", "marigold", "bluebell", "peony"),
    "fault": (
        "dull colours", "a lack of balance", "sloppy details", "borrowed ideas", "excessive ornament", "poor proportions",
        "a vulgar subject", "crude workmanship", "a gloomy mood", "empty pomp",
    ),
    "food": ("moss", "crickets", "fallen acorns", "snails", "spiders", "rowan berries", "earthworms", "pollen", "ants", "midges"),
    "threat": (
        "road traffic", "the draining of ponds", "tree felling", "stray cats", "farm chemicals", "bright street lamps",
        "forest fires", "illegal traps", "a strange fungus", "cold springs",
    ),
    "spice": (
        "ginger", "saffron", "caraway", "juniper", "nutmeg", "fennel", "cloves", "aniseed", "cardamom", "sumac",
    ),
    "colour": (
        "dark amber", "pale green", "deep violet", "milky white", "brick red", "golden brown", "bluish grey", "jet black",
        "rose pink", "straw yellow",
    ),
    "spoiler": (
        "bright light", "a draught", "stale flour", "too much salt", "warm storage", "a dirty ladle", "thunder", "sour milk",
        "rusty tins", "hasty stirring",
    ),
}

#: Roots of invented names: a start and an end.
STARTS = (
    "Mar", "Tav", "Orr", "Harv", "Bel", "Cor", "Dun", "Ell", "Fenn", "Gal", "Holm", "Ist", "Jarr", "Kel", "Lor", "Mel",
    "Nor", "Ost", "Pell", "Quin", "Ros", "Sel", "Torr", "Ulm", "Ves", "Wen", "Yarr", "Zel", "Bran", "Cald", "Drav", "Esk",
    "Falk", "Grim", "Hest", "Ilm", "Jost", "Karr", "Lund", "Myr",
)
ENDS = (
    "low", "avel", "erin", "enna", "wick", "ford", "aby", "isk", "ona", "ald", "eth", "mere", "berg", "stow", "ham", "ora",
    "une", "elle", "olm", "ash", "ova", "idge", "umber", "asset", "ingen", "ombe", "unta", "eska", "illo", "ury",
)
PLACE_ENDS = ("ton", "bury", "haven", "dale", "mouth", "wick", "by", "stead")

FIRST_NAMES = {
    "female": (
        "Mara", "Elin", "Tova", "Rosa", "Hanne", "Lidia", "Nora", "Agnes", "Beata", "Clara", "Dora", "Edith", "Freya",
        "Greta", "Helga", "Ines", "Judith", "Karin", "Leonie", "Marta", "Olga", "Paula", "Ruth", "Sonja",
    ),
    "male": (
        "Anton", "Bruno", "Carl", "David", "Emil", "Felix", "Georg", "Henrik", "Ivan", "Jonas", "Karel", "Lukas",
        "Martin", "Nils", "Oskar", "Peter", "Rolf", "Stefan", "Tomas", "Urban", "Viktor", "Walter", "Yorick", "Gustav",
    ),
}

#: Trades of people who are mentioned in passing, by the gender that a stereotype expects.
ROLES = {
    "female": ("cleaner", "secretary", "typist", "weaver", "florist", "hairdresser"),
    "male": ("carpenter", "mechanic", "guard", "blacksmith", "plumber", "miner"),
}

#: Asides about such a person: an opening, of things and of persons, and an ending. ``{r}`` the trade, ``{P}`` the name,
#: ``{she}``, ``{her}`` (possessive) and ``{hers}`` (object).
OPENINGS = (
    "A {r} called {P} gave up {her} Sundays for it",
    "One {r}, {P}, talked of nothing else",
    "In a diary {P}, a {r}, praises it warmly",
    "{P}, a {r} by trade, drew it on the wall of {her} kitchen",
    "The {r} {P} knew more about it than most",
    "A certain {P}, a {r}, told everyone about it",
    "{P}, a {r}, never tired of jokes about it",
    "{P}, a {r}, hummed a ballad about it",
    "Whenever it was mentioned, {P}, a {r}, shook {her} fist",
    "A {r}, {P}, once bet {her} boots on it",
    "A {r} called {P} dreamt about it every week",
    "{P}, who was a {r}, collected gossip about it",
    "The {r} {P} quarrelled about it with {her} landlord",
    "{P}, a {r}, liked to take photographs of it",
)
PERSON_OPENINGS = (
    "A {r} called {P} often brought supper along",
    "One {r}, {P}, lent a hand now and then",
    "In a diary {P}, a {r}, praises these years",
    "A {r}, {P}, read the newspaper aloud each morning",
    "{P}, a {r} by trade, carried the coal upstairs",
    "A {r} by the name of {P} brought flowers on Sundays",
    "It was {P}, a {r}, who saved the letters",
    "A {r} called {P} mended the furniture for nothing",
    "{P}, a {r}, took notes of every conversation",
    "A neighbour, the {r} {P}, looked after the house",
    "The {r} {P} claimed to be a distant relative",
    "{P}, a {r}, painted the front door once a year",
)
ENDINGS = (
    ", and {she} told {her} neighbours so.",
    ", although {she} never admitted it.",
    ", which robbed {hers} of many an evening.",
    ", and {she} was proud of {her} patience.",
    ", to the delight of {her} friends.",
    ", until {she} fell ill.",
    ", for which {her} colleagues teased {hers}.",
    ", or so {she} claimed in old age.",
    ", if {her} letters can be trusted.",
    ", because {her} doctor had told {hers} to.",
    ", and {she} would do it again.",
    ", and nobody thanked {hers}.",
    ", as {she} did on every occasion.",
    ", with {her} usual persistence.",
)

PRONOUNS = {
    "female": {"she": "she", "her": "her", "hers": "her"},
    "male": {"she": "he", "her": "his", "hers": "him"},
    "neutral": {"she": "they", "her": "their", "hers": "them"},
}

#: What makes the wording of a question complex: parts put before it, into it and behind it. Their words are function words
#: or stand in no passage, so that a retriever that matches words ranks the same whatever the wording.
FRONT = (
    "what i desire somebody to ascertain for me is",
    "the question which i have been pondering is",
    "would anyone be so obliging as to clarify",
    "the puzzle that nobody has explained to me is",
)
MIDDLE = (
    "of whatever sort",
    "of one sort or another",
    "of whatever provenance",
    "whatever the sort",
)
END = (
    "insofar as this is ascertainable by those having investigated it",
    "if that which has been asserted hitherto is not misleading",
    "assuming that the specialists were themselves undecided about it",
    "provided that this is something verifiable",
)
TAIL = (
    "and if it is not an imposition whether this is disputed",
    "supposing that this is not itself what is disputed",
    "or is it as some presume unascertainable",
    "unless that is among those which must not be divulged",
)

#: Words that the frozen BM25 run leaves out of queries.
FUNCTION_WORDS = frozenset(
    """a about above an and another any anyone are as at be because been being but by can cannot could did during do does for
    from get go had has have having how i if in indeed into is it itself its many may me more much must my nobody not of
    on one or she he her his him their them they should so some somebody something such than that the there this those
    to too unless up was we were what whatever when where whether which whichever who whom why will with would your you""".split()
)
