"""Harmless words that vary a sentence and carry no fact anyone asks about."""

_WORDS = {
    "season": "spring|summer|autumn|winter",
    "count": "three|four|five|six|seven|eight|nine",
    "rank": "youngest|eldest|second|third",
    "weather": "mild|bitter|wet|stormy|windless|damp|long",
    "tint": "pale green|dark blue|ochre|grey|crimson|faded yellow|russet|violet",
    "renown": (
        "wide reading|quiet reputation|some renown|rare patience|firm opinions|modest means|great energy"
    ),
    "a_shop": (
        "a bakery|a chandlery|a saddler's shop|a small inn|a pharmacy|a second-hand bookshop|a dye house|"
        "a seed merchant's|a pawnshop|a tea room"
    ),
    "trades": (
        "weavers|bargemen|clerks|stonemasons|schoolteachers|gardeners|market traders|lock keepers|coopers"
    ),
    "pupil": (
        "a restless pupil|a quiet pupil|an indifferent student|a prize-winning student|"
        "the despair of the staff|known for pranks|top of every class|a slow but stubborn learner"
    ),
    "a_companion": "a cousin|an elderly dog|a neighbour's son|a borrowed book|two sisters|a lantern",
    "a_post": (
        "a clerk|a messenger|a copyist|a night watchman|a junior assistant|an apprentice|a travelling agent"
    ),
    "manner": "gentle|sardonic|solemn|playful|melancholy|blunt|dreamy|exact",
    "manner2": "tireless|secretive|methodical|impatient|cheerful|unhurried",
    "funds": (
        "borrowed money|a small inheritance|the proceeds of a lottery ticket|a loan from an aunt|"
        "public donations|savings kept in a tea chest|money from the sale of a farm"
    ),
    "a_manual": "a handbook|a dog-eared manual|a set of printed exercises|a pattern book|an old primer",
    "a_band": (
        "a village band|a theatre orchestra|a dance quartet|an amateur orchestra|a fire brigade band|"
        "a wedding band|a harbour orchestra|a trio of cousins"
    ),
    "pets": (
        "bees|a tame crow|two elderly cats|greyhounds|a parrot of uncertain temper|carrier pigeons|"
        "a blind donkey"
    ),
    "pastime": (
        "fishing|chess|long walks|pressing flowers|mending clocks|amateur theatricals|skating|card games|"
        "sketching clouds|beekeeping"
    ),
    "item": (
        "a folding chair|a pocket telescope|a battered notebook|a silver flask|a walking stick|"
        "a paper fan|a tin of peppermints|an umbrella|a magnifying glass"
    ),
    "topic": (
        "tides|beetles|old maps|heraldry|bridges|the weather|comets|mosses|railway timetables|locks and keys|"
        "migrating birds|mushrooms"
    ),
    "subject": "geometry|grammar|botany|penmanship|singing|algebra|mechanical drawing|rhetoric",
    "legend": (
        "drowned villages|talking birds|a lost king|the north wind|a clever thief|sleeping giants|"
        "a glass ship"
    ),
    "dislike": "public dinners|telephones|early trains|long speeches|being photographed|loud clocks|fashion",
    "a_place": (
        "a barn|an attic|a boathouse|a disused chapel|a cellar|a station waiting room|a summer house|"
        "a converted stable"
    ),
    "clutter": (
        "clocks|stuffed birds|sea charts|dried herbs|unfinished models|maps|old newspapers|seashells|"
        "fossils|musical boxes"
    ),
    "a_height": "a hayloft|a ladder|a horse|a garden wall|a moving cart|an apple tree",
    "sweet": "peppermints|gossip|spare string|liquorice|riddles|ghost stories",
    "scent": "beeswax|old paper|chalk dust|apples|lamp smoke|floor polish",
    "verdict": "dull|shapeless|overlong|sentimental|obscure|cold|old-fashioned|too clever|unfinished",
    "a_pipe": "a clay pipe|a long pipe|thin cigars|a briar pipe",
    "terrain": (
        "low hills|salt marshes|pine forest|chalk downs|high moorland|birch woods|stony uplands|"
        "broad water meadows|terraced slopes"
    ),
    "a_hall": "the town hall|the old customs house|the corn exchange|the guildhall|a former granary",
    "fair": (
        "horse races|puppet shows|lantern processions|wrestling matches|cattle sales|brass bands|"
        "kite contests"
    ),
    "custom": (
        "painted doorways|wooden balconies|night watchmen|covered markets|midsummer bonfires|"
        "carved house signs"
    ),
    "food": (
        "spiced dumplings|onion tart|poppy-seed cake|eel stew|chestnut soup|pickled plums|gingerbread|"
        "baked apples"
    ),
    "a_tempo": "a quiet|a lively|a prosperous|a sleepy|an old-fashioned|a compact|an orderly",
    "mud": "brown|grey|ochre|milky|the colour of tea",
    "flow": "slow|swift|winding|placid|shallow|deep|capricious",
    "cargo": "ice|grain|clay|firewood|wine|bricks|hay|charcoal",
    "fish": "trout|perch|grayling|eels|barbel|bream",
    "birds": "swifts|sand martins|jackdaws|wild ducks|storks|doves|wagtails",
    "bank": "eastern|western|northern|southern",
    "trees": "lime trees|plane trees|alders|willows|poplars|horse chestnuts|old elms|mulberry trees",
    "a_notebook": "a school exercise book|a hymn book|a roll of wallpaper|a leather notebook|an old almanac",
    "service": "courteous|patient|gruff|careful|old-fashioned|thorough",
    "delivery": "barge|mule|ox cart|bicycle|narrow-gauge railway|sledge|canal boat",
    "reviews": "mixed|glowing|puzzled|hostile|respectful|lukewarm",
    "a_simile": (
        "a long letter|a walled garden|a lit window|a ship in fog|an empty road|a family quarrel|"
        "a half-remembered dream|a slow train"
    ),
}
FILLERS: dict[str, tuple[str, ...]] = {field: tuple(words.split("|")) for field, words in _WORDS.items()}
