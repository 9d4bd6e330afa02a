"""The word stock: syllables of six invented cultures, title words, and the values of word relations."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Culture:
    """Syllables of one phonology: a stem is onset, vowel, middle; a tail tells a town from a surname."""

    onsets: tuple[str, ...]
    vowels: tuple[str, ...]
    middles: tuple[str, ...]
    town: tuple[str, ...]
    region: tuple[str, ...]
    river: tuple[str, ...]
    surname: tuple[str, ...]
    house: tuple[str, ...]  # companies, schools and landmarks
    she: tuple[str, ...]
    he: tuple[str, ...]


def _culture(**words: str) -> Culture:
    return Culture(**{key: tuple(value.split()) for key, value in words.items()})


CULTURES = (
    _culture(  # northern
        onsets="B Br D F G Gr H Hj K L M N R S Sk St T Th V W",
        vowels="a e i o u",
        middles="l r n s ll rr m nd ld rn nn th",
        town="wick moor vik dal ham stead fell ness holm garth mere haven",
        region="mark land fold eria shire",
        river="a en ing ow be",
        surname="gaard sen berg quist strand by ager den",
        house="stone croft holt leigh worth gate field bourne",
        she="a ine hild e unn dis",
        he="en or ik ulf ar und",
    ),
    _culture(  # southern
        onsets="B C D F G L M N P R S T V Br Cr Tr Al Gr",
        vowels="a e i o u",
        middles="l r n ss v rr ll nt nd rm lv st",
        town="ano ella ola ento ara essa igo ona etto alba ussa ante",
        region="ania aria esia onia etta",
        river="io ona ura ice anto",
        surname="etti aldi ucci ardo esco ini oro anza edo ussi",
        house="elli andro imar onte aviso erra uno olo",
        she="ina ella ia etta isa ora",
        he="o io ano ino eo ardo",
    ),
    _culture(  # eastern
        onsets="B D Dr G K Kr L M N P R S St T V Vl Z Br",
        vowels="a e i o u",
        middles="l r n v d k sk rd ln b m t",
        town="ov ovo esk inka nitsa ava ets oryn itz any ishte",
        region="ovia avia enia uria ask",
        river="ina ava yca era usha",
        surname="enko ovic ansky arin ev omir achek ulin etsky",
        house="orad etar obor ivan ulka emsk ostin adar",
        she="ka ena itsa ya ana uska",
        he="an ek omir oslav il en",
    ),
    _culture(  # western
        onsets="B C D G L M N P R T Tr Gl Br Cl Mor Car Pen",
        vowels="a e i o u y",
        middles="n r l nn rr dd rg lm nv rw ll st",
        town="och ellan arth aneth owen ick airn avon oyne umber",
        region="wyth ania more odred ulan",
        river="an ow eth oy une",
        surname="annon evar ellick orran wyn agan idoc ough arrow",
        house="eld athen oran ivar ennick allow umra esk",
        she="wen eth a ona idra ais",
        he="an och ic or ael ard",
    ),
    _culture(  # island
        onsets="H K L M N P R S T V J Y Al Il",
        vowels="a e i o u",
        middles="l r n k t s m v ll nn tt kk",
        town="oa ala uni ema iri elo ua ovi amo entu ahi",
        region="anea ola uvia imaa esto",
        river="u oa eki ami ilo",
        surname="onen ikko elua amari uvo itani oro aho emi",
        house="analo iva oku emaru uto alai ensu ovi",
        she="i a ea una ia elle",
        he="o u aki ero imo as",
    ),
    _culture(  # of the plain
        onsets="B D F H J K M N R S Sh T Z G Kh Am",
        vowels="a e i o u",
        middles="r z l n m hr sh rd v f b ss",
        town="abad eth iran ira ush emir oun ashar adan ezir",
        region="istan eshe ahar ouria izan",
        river="ud eh an arat im",
        surname="azi eem andar ouri ezan idi avi ashti oum",
        house="azar imun ahan eshti oraz ulan edar amid",
        she="ah een eh iya ira ana",
        he="im an ad ir esh oun",
    ),
)

BANNED = tuple(  # nothing rude by accident, and none of the best-known real names
    "anus arse bitc cock cunt dick fag fuck nazi nig piss poop porn puss rape sex shag shit slut turd twat "
    "vagin kill pubi vulv tits boob peni wank crap whor suck semen testic scrot urin fart clit nud orgas "
    "horny pimp labia hitler stalin lenin putin obama trump saddam biden marino milano verona barcelona "
    "toronto monaco bologna benito marin moscow genoa".split()
)

ADJECTIVES = tuple(
    "Amber Ashen Bitter Borrowed Brass Broken Burning Candid Careless Crooked Distant Drowned Empty Fallen "
    "Faithful Forgotten Frozen Gentle Gilded Golden Hidden Hollow Honest Idle Ivory Last Late Little "
    "Lonely Long Lost Modest Narrow Northern Only Painted Pale Patient Paper Quiet Restless Rusted Scarlet "
    "Second Secret Severed Silent Silver Sleepless Slow Stolen Stubborn Sudden Tender Timid Unmarked "
    "Unwritten Vanished Velvet Wandering Weary Western White Wooden Young".split()
)
NOUNS = tuple(
    "Salt Harbour Winter Ledger Orchard Lantern River Mirror Garden Bell Compass Ferry Mountain Letter "
    "Candle Island Summer Clock Tower Bridge Meadow Kettle Anchor Portrait Window Road Staircase Autumn "
    "Thunder Morning Violin Attic Feast Shadow Map Forest Snow Harvest Key Kingdom Chapel Tide Carriage "
    "Well Door Marble Ember Feather Voyage Village Station Library Cellar Storm Glass Almanac Fountain "
    "Quarry Wharf Parlour Cathedral Desert Valley Border Telegraph Granary Regatta Procession Furnace "
    "Theatre Causeway Piano Marsh Hearth Avenue Cottage Vineyard Caravan Saddle Loom Balcony Barometer "
    "Comet Sundial Locket Signal Weather Sorrow Promise Inheritance Bargain Rumour Confession Errand "
    "Reunion".split()
)
PLURALS = tuple(
    "Herons Lanterns Letters Bells Swallows Sparrows Stones Shadows Rivers Candles Strangers Sisters "
    "Brothers Mirrors Orchards Ribbons Roses Ravens Sailors Promises Violets Wolves Foxes Clocks Apples "
    "Maps Feathers Thieves Dancers Secrets Boats Gardens Ghosts Keys Masks Moths Nettles Nightingales Owls "
    "Pearls Pilgrims Poppies Quarrels Rumours Saints Shipwrecks Snowdrops Starlings Thistles Tulips "
    "Umbrellas Voices Willows Whispers Windows Hours Embers Cousins Orphans Kites Lemons Larks Marigolds "
    "Oars Parcels Questions Regrets Sandals Tides Vows Wagons Acrobats Bees Beacons Cherries Drums Echoes "
    "Ferries".split()
)
AGENTS = tuple(
    "Miller Glazier Cartographer Beekeeper Ferryman Widow Organist Lamplighter Shepherd Astronomer Tailor "
    "Bookbinder Gardener Watchmaker Fisherman Postmaster Weaver Archivist Blacksmith Midwife Magistrate "
    "Apprentice Stranger Pilgrim Innkeeper Puppeteer Locksmith Perfumer Cellist Falconer Governess "
    "Salter".split()
)
BELONGINGS = tuple(
    "Daughter Apprentice Ledger Lantern Garden Silence Window Promise Hat Almanac Dog Journey Confession "
    "Brother Holiday Umbrella Garland Violin Shoes Secret Spectacles Winter Regret Wager Letters Nephew "
    "Kitchen Map Return Alphabet Bargain Candle Dream House Mirror Riddle Song Staircase "
    "Trunk Wedding".split()
)
PLACES_OF = tuple("Under Beyond Beneath Across Behind Against Above Without Among Along Over Before".split())
REPOSE = tuple(
    "Sleep Gather Return Wander Wait Begin Linger Vanish Sing Drift Shelter Fall Rise Meet Turn".split()
)
NUMBERS = tuple("Two Three Four Five Six Seven Nine Eleven Twelve Forty".split())

# A creator's profession fixes what they make: the plain noun, then the forms it may take.
FORMS: dict[str, tuple[str, tuple[str, ...]]] = {
    "novelist": ("novel", ("historical novel", "ghost story", "comic novel", "detective novel", "family saga",
                           "adventure novel", "epistolary novel", "romance")),
    "poet": ("poem", ("verse epic", "sonnet sequence", "elegy", "narrative poem", "pastoral ode", "ballad")),
    "playwright": ("play", ("tragedy", "farce", "verse drama", "comedy of manners", "melodrama")),
    "composer": ("piece", ("comic opera", "symphony", "string quartet", "cantata", "piano concerto",
                           "song cycle", "ballet", "overture")),
    "painter": ("picture", ("landscape", "townscape", "triptych", "seascape", "night scene", "panorama")),
    "historian": ("book", ("chronicle", "local history", "travel memoir", "guidebook", "essay collection")),
}  # fmt: skip
MAKING = {  # plain noun: made, maker, how it came before the public, what that was
    "novel": ("written", "author", "published", "publication"),
    "poem": ("written", "author", "published", "publication"),
    "play": ("written", "author", "first staged", "first staging"),
    "piece": ("composed", "composer", "first performed", "first performance"),
    "picture": ("painted", "painter", "first exhibited", "first exhibition"),
    "book": ("written", "author", "published", "publication"),
}
FOUNDERS = ("engineer", "merchant", "chemist", "inventor", "printer", "shipwright")
SURVEYORS = ("cartographer", "geologist", "explorer")
PROFESSIONS = (
    *FORMS, "architect", "architect", *FOUNDERS, *SURVEYORS, "botanist", "astronomer", "physician",
    "linguist", "sculptor", "journalist", "translator", "photographer", "judge", "philosopher", "actor",
    "zoologist",
)  # fmt: skip
CORE = (
    "novelist",
    "engineer",
    "architect",
    "composer",
    "cartographer",
    "merchant",
)  # the smallest world has them

PUBLISHING = ("books", "sheet music", "almanacs", "periodicals")
PRODUCTS = tuple(
    "clocks|ceramic tiles|sailcloth|bicycles|optical lenses|barometers|pianos|cutlery|wallpaper|"
    "fountain pens|rope|window glass|felt hats|leather gloves|sewing machines|railway carriages|"
    "marine engines|lamp oil|soap|paint|fishing nets|church bells|umbrellas|typewriters|weighing scales|"
    "biscuits|tinned fruit|furniture|stoneware|agricultural pumps|toy trains|woollen blankets".split("|")
)
CRAFTS = tuple(
    "lace|smoked trout|bell founding|blue pottery|basket weaving|goat cheese|honey cake|glassblowing|"
    "bookbinding|wood carving|dried apricots|saffron buns|plum brandy|kite making|barrel making|"
    "silk ribbon|pewter|salted butter|walnut oil|boat building|wicker chairs|hand-knotted rugs|pear cider|"
    "candied violets|tin toys|embroidered shawls|rye bread|clay pipes|marionettes|quince jelly".split("|")
)
PRODUCE = tuple(
    "barley amber slate hops copper wool flax peat salt marble timber olives walnuts honey tin cork saffron "
    "oysters wheat plums granite lavender herring chestnuts".split()
)
EMBLEMS = tuple(
    "heron otter badger stag owl hare lynx kingfisher salmon boar ram swan oak thistle anchor sheaf "
    "lantern beehive crane falcon ibex squirrel pike oyster rose plough".split()
)
INSTRUMENTS = tuple(
    "viola flute harp accordion mandolin oboe clarinet zither bassoon cornet lute dulcimer".split()
)
MATERIALS = tuple(
    "granite|red brick|sandstone|limestone|cast iron|white marble|reinforced concrete|oak timber|basalt|"
    "yellow brick|black slate|riveted steel".split("|")
)
STRUCTURES = tuple(
    "Bridge Lighthouse Tower Hall Viaduct Observatory Theatre Museum Library Station Mill Pavilion".split()
)
ARTICLED = frozenset("Viaduct Observatory Theatre Museum Library Pavilion".split())  # "the Orrel Museum"
SCHOOLS = ("Academy", "College", "School", "Grammar School", "Seminary", "Lyceum")
