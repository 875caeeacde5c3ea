"""The grammar of units as text, and the names and codes of units that pint's registry lacks.

Units come from publishers, so nothing here evaluates code. The grammar is small, and each part of it is limited:

    unit      =  ["/"] term { operator term }            read from left to right, as UCUM does: a/b.c is (a/b).c
    operator  =  "/" | "per" | "." | "*" | "-" | white space       the last two stay below a slash: W/m2 K is W/(m2.K)
    term      =  ( name | integer | "(" unit ")" ) [ exponent ]
    exponent  =  [ "^" | "**" ] integer                  m2, m^2, s-1; UCUM writes powers of ten as 10*3 or 10^3
    name      =  a letter, then letters, digits, "_" ; or in brackets, as UCUM has them: [in_i], mm[Hg] ; or % ° ' ''

Words around a name count as exponents (`square metre`, `second squared`). Annotations in braces are ignored after a
unit and count as one elsewhere (`{beats}/min`). A digit at the end of `m2` is an exponent unless there is a unit of
that name.

By rule 15 a publisher may write a unit as a code. Each code is defined by an expression over names that pint knows. The
definitions are ours, the numbers are pint's:

    UCUM            `Cel`, `[degF]`, `mm[Hg]`         only what is not pint's symbol anyway
    UN/CEFACT 20    `CEL`, `KGM`, `MTS`               the `unitCode` of NGSI-LD and of trade documents
    QUDT            `DEG_C`, `KiloW-HR`, `M-PER-SEC2` built of atoms and prefixes, so a small table reads most of it
    ISO 4217        `EUR`, `USD`                      each a dimension of its own, see `kindcast.semantic.units.measure`

OM 2 needs no table, because its names are words (`metrePerSecond-Time`).
"""

import difflib
import re
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from kindcast.semantic.unicode_text import nfkc

__all__ = [
    "AMBIGUOUS",
    "CODES_REC20",
    "CURRENCIES",
    "CURRENCY_SIGNS",
    "LEVELS",
    "NOT_UNITS",
    "PREFIXES",
    "QUDT_ATOMS",
    "QUDT_BINARY",
    "QUDT_PREFIXES",
    "SI_PREFIXES",
    "SYMBOLS",
    "WORDS_OM",
    "WORD_PREFIXES",
    "Factor",
    "UnitSyntaxError",
    "factors",
    "local_name",
    "nearest",
    "spellings",
    "tidy",
    "variants",
    "without_prefix",
]


def _table(text: str) -> dict[str, str]:
    """Parses `name expression` pairs, separated by white space."""
    words = text.split()
    return dict(zip(words[::2], words[1::2], strict=True))


def _powers(text: str) -> dict[str, int]:
    return {name: int(power) for name, power in _table(text).items()}


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


SYMBOLS = _table("""
    Cel degree_Celsius          °C degree_Celsius           deg_C degree_Celsius        degrees_Celsius degree_Celsius
    degrees_Fahrenheit degree_Fahrenheit                    degrees_celsius degree_Celsius
    degrees_fahrenheit degree_Fahrenheit                    degree_celsius degree_Celsius
    degree_fahrenheit degree_Fahrenheit                     °F degree_Fahrenheit        deg_F degree_Fahrenheit
    [degF] degree_Fahrenheit    [degR] degree_Rankine       °K kelvin                   % percent
    %RH percent                 %rh percent                 ‰ permille                  [ppth] permille
    [ppm] ppm                   ppb ppm/1000                [ppb] ppm/1000              ppt ppm/10^6
    [pptr] ppm/10^6             ppmv ppm                    ppbv ppm/1000               partsPerMillion ppm
    partsPerBillion ppm/1000    1 dimensionless             [arb] dimensionless         ° degree
    ' arcminute                 '' arcsecond                Ω ohm                       Ohm ohm
    Å angstrom                  Ao angstrom                 AU astronomical_unit        ar are
    AR are                      st stere                    wk week                     mo month
    a_j year                    By byte                     Ci curie                    R roentgen
    REM rem                     G tesla/10000               gauss tesla/10000           Mx weber/10^8
    ph lux*10^4                 sb stilb                    Ky kayser                   Nm newton*meter
    var volt_ampere             VAr volt_ampere             VAR volt_ampere             kn knot
    m[Hg] meter_Hg              mm[Hg] meter_Hg/1000        mmHg meter_Hg/1000          cm[Hg] meter_Hg/100
    [in_i'Hg] inch_Hg           m[H2O] meter_H2O            cm[H2O] meter_H2O/100       mm[H2O] meter_H2O/1000
    [in_i'H2O] inch_H2O         [psi] psi                   [lbf_av] force_pound        gf force_gram
    [in_i] inch                 [ft_i] foot                 [yd_i] yard                 [mi_i] mile
    mil revolution/6400
    [nmi_i] nautical_mile       [kn_i] knot                 [fth_i] foot*6              [mil_i] thou
    [ft_us] survey_foot         [mi_us] survey_mile         [acr_us] survey_foot^2*43560
    [acr_br] yard^2*4840        [sin_i] inch^2              [sft_i] foot^2              [syd_i] yard^2
    [cin_i] inch^3              [cft_i] foot^3              [cyd_i] yard^3              [lb_av] pound
    [oz_av] ounce               [gr] grain                  [stone_av] stone            [ston_av] ton
    [lton_av] long_ton          [oz_tr] troy_ounce          [lb_tr] troy_pound          [car_m] carat
    [gal_us] gallon             [qt_us] quart               [pt_us] pint                [foz_us] fluid_ounce
    [cup_us] cup                [tbs_us] tablespoon         [tsp_us] teaspoon           [bbl_us] oil_barrel
    [bu_us] bushel              [gal_br] imperial_gallon    [qt_br] imperial_quart      [pt_br] imperial_pint
    [foz_br] imperial_fluid_ounce                           [den] denier                cal_IT international_calorie
    [Cal] calorie*1000          Cal calorie*1000            [Btu_IT] international_british_thermal_unit
    [Btu_th] thermochemical_british_thermal_unit            [HP] horsepower             bps bit/second
    kbps bit*1000/second        Mbps bit*10^6/second        Gbps bit*10^9/second        kb bit*1000
    Mb bit*10^6                 Gb bit*10^9                 mcg gram/10^6               har hectare
    kgs kilogram                kms kilometer               degree_kelvin kelvin        degree_rankine degree_Rankine
    [g] gravity                 mb bar/1000                 acre yard^2*4840            acres yard^2*4840
    bbl oil_barrel              fl_oz fluid_ounce           Tb bit*10^12                sqm meter^2
    sqft foot^2                 cfm foot^3/minute           gpm gallon/minute           lpm liter/minute
    cbm meter^3                 sec second                  secs second                 mins minute
    hrs hour                    yrs year                    lbs pound                   pcs dimensionless
    piece dimensionless         pieces dimensionless        unit dimensionless
""")
"""Symbols and UCUM codes, and the few symbols of pint that usually mean something else (`Nm`, `AU`)."""

CODES_REC20 = _table("""
    CEL degree_Celsius                    FAH degree_Fahrenheit                 KEL kelvin         P1 percent
    59 ppm             61 ppm/1000        C62 dimensionless  H87 dimensionless  EA dimensionless
    DZN dimensionless*12                  PR dimensionless*2                    GRO dimensionless*144
    MTR meter          KMT kilometer      DMT decimeter      CMT centimeter     MMT millimeter     4H micrometer
    C45 nanometer      INH inch           FOT foot           YRD yard           SMI mile           NMI nautical_mile
    MTK meter^2        KMK kilometer^2    CMK centimeter^2   DMK decimeter^2    HAR hectare        ACR yard^2*4840
    INK inch^2         FTK foot^2         YDK yard^2         MIK mile^2         MTQ meter^3        DMQ decimeter^3
    CMQ centimeter^3   MMQ millimeter^3   LTR liter          HLT hectoliter     DLT deciliter      CLT centiliter
    MLT milliliter     4G microliter      INQ inch^3         FTQ foot^3         YDQ yard^3         GLL gallon
    GLI imperial_gallon                   BLL oil_barrel     OZA fluid_ounce    OZI imperial_fluid_ounce
    PTI imperial_pint  QTI imperial_quart                    KGM kilogram       GRM gram           MGM milligram
    TNE metric_ton     LBR pound          ONZ ounce          LTN long_ton       STI stone          CTM carat
    APZ troy_ounce     SEC second         MIN minute         HUR hour           DAY day            WEE week
    MON month          ANN year           C26 millisecond    B98 microsecond    C47 nanosecond
    HTZ hertz          KHZ kilohertz      MHZ megahertz      A86 gigahertz      RPM revolution/minute
    RPS revolution/second
    MTS meter/second   KMH kilometer/hour                    HM mile/hour       KNT knot
    2M centimeter/second                  C16 millimeter/second                 FS foot/second     MSK meter/second^2
    NEW newton         B47 kilonewton     B73 meganewton     B37 force_kilogram                    NU newton*meter
    C78 force_pound    PAL pascal         KPA kilopascal     MPA megapascal     A97 hectopascal    BAR bar
    MBR millibar       ATM standard_atmosphere               HN meter_Hg/1000   JOU joule          KJO kilojoule
    3B megajoule       WHR watt_hour      KWH kilowatt_hour  MWH megawatt_hour  GWH gigawatt_hour
    D70 international_calorie             BTU international_british_thermal_unit                   WTT watt
    C31 milliwatt      KWT kilowatt       MAW megawatt       A90 gigawatt       D46 volt_ampere    KVA kilovolt_ampere
    MVA megavolt_ampere                   D44 volt_ampere    KVR kilovolt_ampere
    K43 electrical_horsepower             HJ metric_horsepower                  AMP ampere         4K milliampere
    B84 microampere    AMH ampere_hour    E09 milliampere_hour                  VLT volt           2Z millivolt
    KVT kilovolt       OHM ohm            B49 kiloohm        B75 megaohm        SIE siemens        C34 mole
    FAR farad          4O microfarad      4T picofarad       81 henry           C14 millihenry     D33 tesla
    C29 millitesla     WEB weber          CDL candela        LUM lumen          LUX lux            DD degree
    D61 arcminute      D62 arcsecond      C81 radian         A91 gon            D27 steradian      BQL becquerel
    2Q kilobecquerel   A95 gray           D13 sievert        C28 millisievert   KAT katal
    GP milligram/meter^3                  GQ microgram/meter^3                  KMQ kilogram/meter^3
    A93 gram/meter^3   M1 milligram/liter                    D41 metric_ton/meter^3                28 kilogram/meter^2
    D54 watt/meter^2   MQH meter^3/hour   MQS meter^3/second                    LD liter/day       L2 liter/minute
    G51 liter/second   E32 liter/hour     G2 gallon/minute   2L foot^3/minute   E93 kilogram/hour
    D53 watt/(meter*kelvin)               D55 watt/(meter^2*kelvin)             D10 siemens/meter  D50 volt/meter
    H61 millisiemens/centimeter           G42 microsiemens/centimeter           A99 bit            AD byte
    2P kilobyte        4L megabyte        E34 gigabyte       E35 terabyte       E64 kibibyte       E63 mebibyte
    E62 gibibyte       B10 bit/second     C74 kilobit/second                    E20 megabit/second
    B80 gigabit/second
""")
"""Codes of UN/CEFACT Recommendation 20: those used most for sensors, energy, transport and trade. Codes that are also
currencies (`COU`, `KGS`, `MMK`, `STN`) are read as currencies."""

QUDT_PREFIXES = _powers("""
    Yotta 24 Zetta 21 Exa 18 Peta 15 Tera 12 Giga 9 Mega 6 Kilo 3 Hecto 2 Deca 1
    Deci -1 Centi -2 Milli -3 Micro -6 Nano -9 Pico -12 Femto -15 Atto -18
""")
SI_PREFIXES = _powers("""
    Y 24 Z 21 E 18 P 15 T 12 G 9 M 6 k 3 h 2 da 1
    d -1 c -2 m -3 u -6 n -9 p -12 f -15 a -18 z -21 y -24
""")
"""Powers of ten. The symbols of the four newest are left out: `RM` is more often a ringgit than 10^27 molar."""
QUDT_BINARY = ("Kibi", "Mebi", "Gibi", "Tebi", "Pebi", "Exbi")
"""Prefixes that occur only before `BIT` and `BYTE`. pint has the same words."""

QUDT_ATOMS = _table("""
    M meter            IN inch            FT foot            YD yard            MI mile            MI_N nautical_mile
    MI_US survey_mile  FT_US survey_foot  ANGSTROM angstrom  AU astronomical_unit                  LY light_year
    PARSEC parsec      MIL_Length thou    GM gram            TONNE metric_ton   TON_Metric metric_ton
    LB pound           LB_M pound         OZ ounce           GRAIN grain        CARAT carat        TON_SHORT ton
    TON_US ton         TON_LONG long_ton  TON_UK long_ton    SLUG slug          DWT pennyweight    SEC second
    MIN minute         HR hour            DAY day            WK week            YR year            SH shake
    K kelvin           DEG_C degree_Celsius                  DEG_F degree_Fahrenheit
    DEG_R degree_Rankine                  A ampere           V volt             OHM ohm            S siemens
    MHO siemens        C coulomb          FARAD farad        H henry            T tesla            WB weber
    GAUSS tesla/10000  MX weber/10^8      A_Ab abampere      BIOT biot          W watt             VA volt_ampere
    VAR volt_ampere    V-A volt_ampere    V-A_Reactive volt_ampere              A_Reactive ampere  J joule
    EV electron_volt   ERG erg            CAL_IT international_calorie          CAL_TH calorie
    BTU_IT international_british_thermal_unit                BTU_TH thermochemical_british_thermal_unit
    N newton           DYN dyne           PDL poundal        LB_F force_pound   GM_F force_gram    OZ_F force_ounce
    POND force_gram    KIP_F kip          PA pascal          BAR bar            BARYE barye
    ATM standard_atmosphere               ATM_T technical_atmosphere            TORR torr          PSI psi
    M_H2O meter_H2O    M_HG meter_Hg      IN_HG inch_Hg      POISE poise        ST stokes          HZ hertz
    REV revolution     CYC dimensionless  BEAT dimensionless                    BREATH dimensionless
    RAD radian         SR steradian       DEG degree         ARCMIN arcminute   MIN_Angle arcminute
    MIL revolution/6400                   MIL_Angle revolution/6400
    ARCSEC arcsecond   SEC_Angle arcsecond                   GON gon            GRAD gon           CD candela
    LM lumen           LUX lux            PHOT lux*10^4      STILB stilb        MOL mole           KAT katal
    BQ becquerel       CI curie           GRAY gray          SV sievert         RAD_R rads         REM rem
    R roentgen         L liter            ARE are            HA hectare         AC yard^2*4840     BARN barn
    GAL_US gallon      GAL_UK imperial_gallon                GAL_IMP imperial_gallon               QT_US quart
    PINT_US pint       QT_UK imperial_quart                  PINT_UK imperial_pint
    OZ_VOL_US fluid_ounce                 OZ_VOL_UK imperial_fluid_ounce        BBL oil_barrel
    BBL_US_PET oil_barrel                 BU_US bushel       CUP_US cup         CUP cup            TSP teaspoon
    TBSP tablespoon
    KN knot            GALILEO galileo    G gravity          HP_Metric metric_horsepower
    HP_Electric electrical_horsepower     BIT bit            BYTE byte          OCTET byte         BAUD 1/second
    PERCENT percent    PERCENT_RH percent                    PERMILLE permille  PPTH permille      PPM ppm
    PPB ppm/1000       PPTR ppm/10^6      UNITLESS dimensionless                NUM dimensionless  ONE dimensionless
    FRACTION dimensionless                COUNT dimensionless                   INDIV dimensionless
    SAMPLE dimensionless                  TEN dimensionless*10                  HUNDRED dimensionless*100
    THOUSAND dimensionless*1000
""")
"""Local names of QUDT units that are not composed of other names."""

WORDS_OM = _table("""
    partsPerMillion ppm         partsPerBillion ppm/1000    euro EUR                    poundSterling GBP
    UnitedStatesDollar USD      JapaneseYen JPY             SwissFranc CHF              one dimensionless
    litre liter                 rad rads                    gal galileo
    standardAtmosphere standard_atmosphere                  poundAvoirdupois pound      ounceAvoirdupois ounce
    mile-Statute mile           mile-USSurvey survey_mile   foot-International foot     inch-International inch
    nauticalMile-International nautical_mile                bushel-US bushel            gallon-US gallon
    gallon-Imperial imperial_gallon
""")
"""OM 2 names that are not composed of English unit names."""

LEVELS: dict[str, tuple[str, int]] = {
    "dB": ("level:dB", 1),
    "decibel": ("level:dB", 1),
    "decibels": ("level:dB", 1),
    "bel": ("level:dB", 10),
    "DECIB": ("level:dB", 1),
    "DeciB": ("level:dB", 1),
    "DeciBEL": ("level:dB", 1),
    "2N": ("level:dB", 1),
    "B_Acoustic": ("level:dB", 10),
    "dBA": ("level:dB(A)", 1),
    "dB(A)": ("level:dB(A)", 1),
    "dB[A]": ("level:dB(A)", 1),
    "dBC": ("level:dB(C)", 1),
    "dB(C)": ("level:dB(C)", 1),
    "dB[SPL]": ("level:dB(SPL)", 1),
    "dB(SPL)": ("level:dB(SPL)", 1),
    "B[SPL]": ("level:dB(SPL)", 10),
    "dBm": ("level:dBm", 1),
    "DeciB_M": ("level:dBm", 1),
    "dBW": ("level:dBW", 1),
    "dBV": ("level:dBV", 1),
    "dBi": ("level:dBi", 1),
    "Np": ("level:Np", 1),
    "neper": ("level:Np", 1),
    "NP": ("level:Np", 1),
    "pH": ("level:pH", 1),
    "[pH]": ("level:pH", 1),
    "PH": ("level:pH", 1),
}
"""Logarithmic scales: (dimension, how many units of the dimension one of these is). A level compares only with levels
of the same reference, so no logarithm is ever computed."""

CURRENCIES = _names("""
    AED AFN ALL AMD ANG AOA ARS AUD AWG AZN BAM BBD BDT BGN BHD BIF BMD BND BOB BOV BRL BSD BTN BWP BYN BZD CAD CDF CHE
    CHF CHW CLF CLP CNY COP COU CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GNF GTQ GYD
    HKD HNL HTG HUF IDR ILS INR IQD IRR ISK JMD JOD JPY KES KGS KHR KMF KPW KRW KWD KYD KZT LAK LBP LKR LRD LSL LYD MAD
    MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MXV MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP PKR PLN PYG QAR
    RON RSD RUB RWF SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TND TOP TRY TTD TWD TZS UAH
    UGX USD USN UYI UYU UYW UZS VED VES VND VUV WST XAF XAG XAU XCD XCG XDR XOF XPD XPF XPT XSU XUA YER ZAR ZMW ZWG
""")
"""The codes of ISO 4217: currencies in use, and precious metals."""

CURRENCY_SIGNS = {"€": "EUR", "₹": "INR", "₺": "TRY", "₴": "UAH", "₪": "ILS", "₫": "VND", "₽": "RUB"}
"""Signs of exactly one currency."""

AMBIGUOUS: dict[str, tuple[str, ...]] = {
    "$": ("USD", "CAD", "AUD"),
    "£": ("GBP", "EGP"),
    "¥": ("JPY", "CNY"),
    "M": ("molar", "meter"),
    "RAD": ("radian", "rads"),
    "PS": ("psi", "metric_horsepower"),
    "GL": ("gigaliter", "g/L"),
    "GV": ("gigavolt", "gigajoule"),
    "MC": ("megacoulomb", "microgram"),
}
"""Names that mean different units in different code systems. They are rejected, with the choices (as in rule 13)."""

NOT_UNITS = _names("""
    pi tansec ln10 wien_x wien_u eulers_number speed_of_light planck_constant elementary_charge avogadro_number
    boltzmann_constant conventional_josephson_constant conventional_von_klitzing_constant conventional_water_density
    conventional_mercury_density zeta dirac_constant avogadro_constant molar_gas_constant faraday_constant
    conductance_quantum magnetic_flux_quantum josephson_constant von_klitzing_constant stefan_boltzmann_constant
    first_radiation_constant second_radiation_constant wien_wavelength_displacement_law_constant
    wien_frequency_displacement_law_constant newtonian_constant_of_gravitation rydberg_constant electron_g_factor
    electron_mass proton_mass neutron_mass x_unit_Cu x_unit_Mo angstrom_star fine_structure_constant
    vacuum_permeability vacuum_permittivity impedance_of_free_space coulomb_constant classical_electron_radius
    thomson_cross_section water_density_4C water_density_60F mercury_density_0C mercury_density_32F
    mercury_density_60F statohm statfarad statmho stathenry stattesla statweber number_meter absorbance_unit
""")
"""Constants of nature, which pint has under symbols such as `e`, `k` and `c`, but which no quantity means. Then
Gaussian units, which differ from the SI units of their dimension, and two units whose symbols (`Nm`, `AU`) mean
others."""


MOST_FACTORS = 12
"""The maximum number of names in a unit."""
LARGEST_EXPONENT = 12
"""The largest exponent. Physical units stay far below it. With the limit above, it keeps the numbers of a conversion
below a kilobyte."""
LARGEST_POWER_OF_TEN = 30
"""The largest n in `10*n`, the form in which UCUM writes counts. Prefixes also end at 10^30."""
DEEPEST = 4
"""The maximum depth of parentheses."""

RAISED = re.compile("[⁺⁻]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+")
LOWERED = str.maketrans("⁺⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "+-0123456789")
TYPOGRAPHY = str.maketrans("−–⁄∕÷⋅·∙×μ′", "--///...*u'")
"""Applied after NFKC, which turns `℃` into `°C`, both micro signs into the Greek letter, and a double prime into
two."""
QUALIFIER = re.compile(r"\{[^{}]*\b(?:UK|US|Imp|IT|th|mean|long|short|Troy)\b[^{}]*\}")
"""A qualifier that names another unit (`gal{UK}`, in some tables). It is not removed like an annotation, so the grammar
rejects the text."""
ANNOTATION = re.compile(r"(?P<unit>[\w\])%'])?\{[^{}]*\}")
TOKEN = re.compile(
    r"(?P<space>\s+)"
    r"|(?P<power>10(?:\*|\^)(?P<ten>[+-]?[0-9]{1,2})(?![0-9]))"
    r"|(?P<number>[0-9]{1,10})"
    r"|(?P<name>''|'|%[A-Za-z]{0,2}|°[A-Za-z]{0,2}|[^\W\d]\w*(?:\[[\w']+\])?|\[[\w']+\]|[‰€₹₺₴₪₫₽])"
    r"|(?P<operator>[/.*()-])"
)
EXPONENT = re.compile(r"(?:\*\*|\^)?([+-]?[0-9]{1,2})(?![0-9])")


class UnitSyntaxError(Exception):
    """Raised if the text has not the syntax of a unit."""


@dataclass(frozen=True, slots=True)
class Factor:
    """`words` (one name, or several that may be one name: `degree Celsius`) to the power of `exponent`. A number is a
    factor without words. `first` is an additional power of the first name (`square`, `cubic`). `written` tells that the
    power was in the text, so that digits at the end of a name are not a second power."""

    words: tuple[str, ...]
    exponent: int
    number: int = 1
    first: int = 1
    written: bool = False


def tidy(text: str) -> str:
    """Normalises typographic variants to one spelling, and removes UCUM annotations."""
    plain = text.strip()
    if not plain.isascii():
        plain = plain.replace("º", "°")
        plain = RAISED.sub(lambda digits: "^" + digits[0].translate(LOWERED), plain)
        plain = nfkc(plain).translate(TYPOGRAPHY)
    if "{" not in plain or QUALIFIER.search(plain):
        return plain
    return ANNOTATION.sub(lambda found: found["unit"] or "1", plain)


def factors(text: str) -> tuple[Factor, ...]:
    """Returns the factors of `text`, which must be tidy. Their order has no meaning. An empty text is the unit one.

    Linear in the length, which the caller limits. Raises `UnitSyntaxError`.

    >>> [(factor.words, factor.exponent) for factor in factors("kg/m3")]
    [(('kg',), 1), (('m3',), -1)]
    """
    found, position = _unit(text, 0, depth=0)
    if position != len(text):
        raise UnitSyntaxError(f"{text[position]!r} is not expected here")
    if len(found) > MOST_FACTORS:
        raise UnitSyntaxError(f"a unit has at most {MOST_FACTORS} factors")
    if any(abs(factor.exponent) > LARGEST_EXPONENT for factor in found):
        raise UnitSyntaxError(f"an exponent is at most {LARGEST_EXPONENT}")
    return tuple(found)


def _unit(text: str, position: int, depth: int) -> tuple[list[Factor], int]:
    """Returns the factors from `position` to the end, or to the parenthesis that closes this depth, and that
    position."""
    terms = _Terms()
    free = True
    """Whether a term may begin here: at the start, after an operator and after white space."""
    while position < len(text):
        token = TOKEN.match(text, position)
        if token is None:
            raise UnitSyntaxError(f"{text[position]!r} is not expected here")
        kind, word, position = token.lastgroup, token.group(), token.end()
        begins = kind in ("name", "number", "power") or word == "("
        if begins and not free:
            raise UnitSyntaxError(f"an operand is missing before {word!r}")
        free = not begins and word != ")"
        if kind == "name":
            if not terms.spoken(word.lower()):
                exponent, position = _exponent(text, position)
                terms.name(word, exponent)
        elif kind == "number" and text[position : position + 1].strip("/.*)") == "":
            terms.number(int(word), 1)
        elif kind == "power":
            ten = int(token["ten"])
            if abs(ten) > LARGEST_POWER_OF_TEN:
                raise UnitSyntaxError(f"{word} is too large: at most 10*{LARGEST_POWER_OF_TEN}")
            terms.number(10 ** abs(ten), 1 if ten >= 0 else -1)
        elif word == "(":
            if depth == DEEPEST:
                raise UnitSyntaxError(f"more than {DEEPEST} nested parentheses")
            inner, position = _unit(text, position, depth + 1)
            if not inner or text[position : position + 1] != ")":
                raise UnitSyntaxError("a parenthesis is empty or not closed")
            exponent, position = _exponent(text, position + 1)
            terms.group(inner, 1 if exponent is None else exponent)
        elif word == ")" and depth:
            return terms.done(), position - 1
        elif word in ("/", ".", "*"):
            terms.operator(-1 if word == "/" else 1)
        elif word == "-":
            terms.hyphen()
        elif kind != "space":
            raise UnitSyntaxError(f"{word!r} is not expected here")
    return terms.done(), position


class _Terms:
    """Collects the terms of one unit. Adjacent words are kept together, because they may be one name."""

    def __init__(self) -> None:
        self._found: list[Factor] = []
        self._words: list[str] = []
        self._sign = 1
        self._power = 1
        self._waiting = False
        """Whether an operator was read, but not its right operand."""

    def done(self) -> list[Factor]:
        self._flush()
        if self._waiting or self._power != 1:
            raise UnitSyntaxError("an operand is missing at the end")
        return self._found

    def operator(self, sign: int) -> None:
        self._flush()
        if self._waiting or not (self._found or sign < 0):
            raise UnitSyntaxError("write an operator between two units")
        self._sign = sign
        self._waiting = True

    def hyphen(self) -> None:
        """Reads the hyphen in `kW-h`: a product like white space, but a term must follow."""
        if self._waiting or not (self._found or self._words):
            raise UnitSyntaxError("two units are joined by a hyphen")
        self._waiting = True

    def spoken(self, word: str) -> bool:
        """Reads `word` if it is one of the words for operators and exponents, and returns whether it is."""
        if word == "per":
            self.operator(-1)
        elif word in ("square", "cubic"):
            self._flush()
            self._power = 2 if word == "square" else 3
        elif word in ("squared", "cubed") and self._words:
            self.name(self._words.pop(), 2 if word == "squared" else 3)
        else:
            return False
        return True

    def name(self, word: str, exponent: int | None) -> None:
        self._waiting = False
        if exponent is None:
            self._words.append(word)
        else:
            self._flush()
            self._found.append(Factor((word,), self._sign * exponent, written=True))

    def number(self, number: int, exponent: int) -> None:
        self._flush()
        self._waiting = False
        self._found.append(Factor((), self._sign * exponent, number))

    def group(self, inner: list[Factor], exponent: int) -> None:
        self._flush()
        self._waiting = False
        self._found += [replace(each, exponent=each.exponent * exponent * self._sign) for each in inner]

    def _flush(self) -> None:
        if self._words:
            self._found.append(Factor(tuple(self._words), self._sign, first=self._power, written=self._power != 1))
            self._words.clear()
            self._power = 1


def _exponent(text: str, position: int) -> tuple[int | None, int]:
    """Returns the exponent at `position`, or None, and the position after it."""
    token = EXPONENT.match(text, position)
    return (None, position) if token is None else (int(token[1]), token.end())


# From the name of a unit to the expressions to look up, in order of precedence.
#
# A plain name is tried as a symbol or name of pint, as a code of UN/CEFACT, as a name of QUDT, and last as an
# expression of such names (`km/h`). Only in the last step prefixes are removed, so that `GP` is CEFACT's mg/m³ and not
# the gigapoise. An IRI identifies its system. All results are expressions that `factors` can read.

QUDT = re.compile(
    r"(?:https?://(?:www\.)?qudt\.org/(?:[0-9.]+/)?vocab/(?:unit|currency)[/#]|unit:|cur:)(?P<local>[\w.-]+)"
)
OM = re.compile(r"(?:https?://www\.(?:ontology-of-units-of-measure\.org|wurvoc\.org)/.*/|om:)(?P<local>[\w-]+)")
REC20 = re.compile(r"https?://\S*[Uu]nit[^\s/#]*[#/](?P<code>[A-Z0-9]{2,3})")
"""A code of UN/CEFACT Recommendation 20 in the list of another standard: `…/MeasurementUnitCode#KGM`."""
OM_KIND = re.compile(r"-(?:Time|Angle|Temperature)")
CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
QUDT_TOKEN = re.compile(rf"({'|'.join(QUDT_PREFIXES)})?([A-Za-z][A-Za-z_]*?)([0-9]?)")
BINARY = re.compile(rf"({'|'.join(QUDT_BINARY)})(BIT|BYTE)")

BINARY_SYMBOLS = ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
PREFIXES = {
    **{symbol: Fraction(10) ** power for symbol, power in SI_PREFIXES.items()},
    **{symbol: Fraction(1024) ** power for power, symbol in enumerate(BINARY_SYMBOLS, start=1)},
}
WORD_PREFIXES = {
    **{prefix.lower(): Fraction(10) ** power for prefix, power in QUDT_PREFIXES.items()},
    **{prefix.lower(): Fraction(1024) ** power for power, prefix in enumerate(QUDT_BINARY, start=1)},
    "deka": Fraction(10),
}
LONGEST_PREFIX = max(map(len, WORD_PREFIXES))
SHORTEST_WORD = 4
"""The least length of a name that counts as a word instead of a symbol."""
SHORTEST_STEM = 3
"""The least number of letters after a prefix that is a word: `kilobit` is read, but `Kibit` is no kibi-tonne."""

SUGGESTED = 5
CUTOFF = 0.6
"""The least similarity (0 … 1, `difflib`) of a suggestion."""


def local_name(name: str) -> str:
    """Returns the last part of an IRI or CURIE of a known system; other names unchanged."""
    found = QUDT.fullmatch(name) or OM.fullmatch(name)
    return found["local"] if found else name


def spellings(name: str, known: Container[str]) -> Iterator[str]:
    """Yields expressions that `name` may stand for, the most likely first. `known` are the names and symbols of pint,
    which take precedence over all other systems."""
    qudt, om = QUDT.fullmatch(name), OM.fullmatch(name)
    if qudt:
        code = qudt["local"].removeprefix("CCY_")
        is_unit = qudt["local"] in QUDT_ATOMS and "currency" not in name and not name.startswith("cur:")
        expression = code if code in CURRENCIES and not is_unit else _of_qudt(qudt["local"])
        if expression:
            yield expression
        elif "1.1/" in name:  # names before version 2 are words: `DegreeCelsius`
            yield CAMEL.sub(" ", qudt["local"]).lower()
    elif om:
        local = om["local"]
        yield WORDS_OM.get(local) or CAMEL.sub(" ", OM_KIND.sub("", local)).lower()
    elif code_of := REC20.fullmatch(name):
        if code_of["code"] in CODES_REC20:
            yield CODES_REC20[code_of["code"]]
    elif "://" not in name:
        plain = tidy(name)
        if plain in SYMBOLS:
            yield SYMBOLS[plain]
        elif plain in CURRENCIES or plain in known:
            yield plain
        elif plain:
            if plain in CODES_REC20:
                yield CODES_REC20[plain]
            expression = _of_qudt(plain)
            if expression:
                yield expression
            yield plain


def variants(name: str) -> Iterator[str]:
    """Yields `name`, its singular, and its form in lower case if it is capitalised (`Kelvin`). Short names have no
    variants, because they are symbols, in which the case matters."""
    yield name
    if len(name) >= SHORTEST_WORD:
        if name.endswith("s"):
            yield name[:-1]
        if name.istitle():
            yield name.lower()
            yield name.lower().removesuffix("s")


def without_prefix(name: str) -> Iterator[tuple[Fraction, str]]:
    """Yields (factor of the prefix, rest of the name) for each prefix with which `name` may begin."""
    folded = name.lower() if name.istitle() else name
    for length in range(min(len(name) - SHORTEST_STEM, LONGEST_PREFIX), 0, -1):
        worth = WORD_PREFIXES.get(folded[:length])
        if worth is not None:
            yield worth, folded[length:]
    for length in (2, 1):
        worth = PREFIXES.get(name[:length])
        if worth is not None and len(name) > length:
            yield worth, name[length:]


def _of_qudt(name: str) -> str | None:
    """Translates a QUDT name into an expression, or returns None: `KiloW-HR-PER-M2` becomes
    `(10*3.(watt)).(hour)/((meter)2)`."""
    if name in QUDT_ATOMS:
        return QUDT_ATOMS[name]
    expression, operator = "", ""
    for token in name.split("-"):
        if token == "PER":
            if operator == "/":
                return None
            operator = "/"
            continue
        factor = _factor_of_qudt(token)
        if factor is None:
            return None
        expression += operator + factor
        operator = operator or "."
    return expression or None


def _factor_of_qudt(token: str) -> str | None:
    binary = BINARY.fullmatch(token)
    if binary:
        return binary[1].lower() + binary[2].lower()
    shape = QUDT_TOKEN.fullmatch(token)
    if shape is None:
        return None
    prefix, atom, power = shape.groups()
    if atom not in QUDT_ATOMS:
        return None
    scaled = f"10*{QUDT_PREFIXES[prefix]}.({QUDT_ATOMS[atom]})" if prefix else QUDT_ATOMS[atom]
    return f"({scaled}){power}"


def nearest(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """Returns the known names that `name` may be a misspelling of, the most similar first.

    Only names of about the same length with the same first letter, in either case, are compared: some dozens.
    """
    local = local_name(name)[:40]
    if not local:
        return ()
    first, length = local[0].casefold(), len(local)
    alike = (each for each in known if abs(len(each) - length) <= length // 3 + 1 and each[0].casefold() == first)
    folded: dict[str, str] = {}
    for each in alike:
        folded[each.casefold()] = max(each, folded.get(each.casefold(), ""))  # `deg` rather than `DEG`
    found = difflib.get_close_matches(local.casefold(), folded, SUGGESTED, CUTOFF)
    return tuple(folded[each] for each in found)
